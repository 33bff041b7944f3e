"""Croissant: a version in the metadata format of MLCommons, release 1.0, as JSON-LD.

Every shard is a file with its digest. URLs in a bucket are https, which mlcroissant reads, without
credentials. The classes are a record set; so is each split whose shards are tar archives, with the
members as records. https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from larder.config.models.cluster import Cluster
from larder.config.urls import parse_url, s3_server
from larder.experiments.consumers.plain import DELIVERIES, TEMPLATE, command, to_json
from larder.experiments.delivery import ConfigFile, ConfigRequest, DeliveredVersion
from larder.manifest.sealed import StoredFile

__all__ = ["DELIVERIES", "TEMPLATE", "command", "config_files"]

_CR = "http://mlcommons.org/croissant/"
_NAMES = ("extract", "field", "fileProperty", "fileSet", "includes", "key", "recordSet", "source")
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": _CR,
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
    **{name: f"cr:{name}" for name in _NAMES},
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
}
_S3 = "https://s3.amazonaws.com"
_TYPES = {"tar": "application/x-tar", "parquet": "application/vnd.apache.parquet"}


def config_files(request: ConfigRequest) -> tuple[ConfigFile, ...]:
    delivered, contents = request.delivered, request.contents
    root = _root(delivered, request.cluster)
    files = contents.shard_files()
    records, sets = [], []
    if contents.class_names:
        numbered = enumerate(contents.class_names)
        records.append(_record_set("classes", {"number": "sc:Integer", "name": "sc:Text"}))
        records[0]["key"] = {"@id": "classes/number"}
        records[0]["data"] = [
            {"classes/number": number, "classes/name": name} for number, name in numbered
        ]
    for split in sorted(contents.splits):
        tars = [file for file in files.get(split, ()) if file.path.endswith(".tar")]
        if tars:
            sets.append(_members(split, tars))
            records.append(_record_set(split, {"path": "sc:Text", "content": "sc:Text"}))
            for field, what in zip(records[-1]["field"], ("fullpath", "content"), strict=True):
                source = {"fileSet": {"@id": sets[-1]["@id"]}, "extract": {"fileProperty": what}}
                field["source"] = source
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": f"{_CR}1.0",
        "name": delivered.dataset,
        "description": f"Version {delivered.version} of {delivered.dataset}, as shards of Larder.",
        "url": delivered.location.removeprefix("file://"),
        "version": delivered.version,
        "identifier": contents.digest,
        "distribution": [
            *(_file_object(root, file) for each in files.values() for file in each),
            *sets,
        ],
        "recordSet": records,
    }
    return (ConfigFile("croissant.json", to_json(document)),)


def _root(delivered: DeliveredVersion, cluster: Cluster) -> str:
    """Return the dataset's root, as mlcroissant opens it."""
    root, access = parse_url(delivered.root.rstrip("/")), cluster.storage.access
    if root.is_directory:
        return delivered.root.removeprefix("file://")
    server = "https://storage.googleapis.com"
    if root.scheme == "s3":
        server = s3_server(access.region) if access.region else _S3
    return f"{access.endpoint or server}/{quote(f'{root.bucket}/{root.prefix}')}/"


def _file_object(root: str, file: StoredFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path.rpartition("/")[2],
        "contentUrl": f"{root}{quote(file.path) if '://' in root else file.path}",
        "contentSize": f"{file.bytes} B",
        "encodingFormat": _TYPES.get(file.path.rpartition(".")[2], "application/octet-stream"),
        "sha256": file.sha256,
    }


def _members(split: str, tars: Sequence[StoredFile]) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{split}/parts",
        "name": f"{split}/parts",
        "containedIn": [{"@id": file.path} for file in tars],
        "encodingFormat": "application/octet-stream",
        "includes": ["*.*", "**/*.*"],
    }


def _record_set(name: str, types: Mapping[str, str]) -> dict[str, Any]:
    fields = [
        {"@type": "cr:Field", "@id": f"{name}/{field}", "name": field, "dataType": kind}
        for field, kind in types.items()
    ]
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": fields}
