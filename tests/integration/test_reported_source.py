"""A source that a report lists: complete runs, with and without etags, against real S3 servers."""

import gzip
import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

import pytest
from pipeline_lab import Lab, images, opened, png

from larder.copy.engine import copy_batch
from larder.copy.limits import CopyLimits
from larder.copy.proof import CopiedObject
from larder.errors import LarderError
from larder.limits import ByteBudget
from larder.progress import NullProgress
from larder.store import Store
from tests.support.servers import S3Server

FIELDS = {"labels": {"from": "folder"}, "shards": {"bytes": 4_000}}
SCHEMA = "Bucket, Key, Size, LastModifiedDate, ETag"


def reach(server: S3Server) -> dict[str, str]:
    return {"endpoint": server.endpoint, "region": server.region}


def report(store: Store, prefix: str, keys: Mapping[str, bytes], *, etags: bool) -> str:
    """A report of S3 Inventory of these objects; the key of its manifest."""
    lines = []
    for key in keys:
        info = store.head(prefix + key)
        etag = info.etag if etags else ""
        values = ("bucket", quote_plus(prefix + key), info.size_bytes, "2026-11-19T12:00:00.000Z")
        lines.append(",".join(f'"{value}"' for value in (*values, etag)))
    data = gzip.compress("\n".join(lines).encode())
    folder = f"reports/{uuid.uuid4().hex}"
    store.put(f"{folder}/data/0.csv.gz", data)
    file = {
        "key": f"{folder}/data/0.csv.gz",
        "size": len(data),
        "MD5checksum": hashlib.md5(data, usedforsecurity=False).hexdigest(),
    }
    manifest = {
        "sourceBucket": "reported",
        "creationTimestamp": "1795140000000",
        "fileFormat": "CSV",
        "fileSchema": SCHEMA,
        "files": [file],
    }
    key = f"{folder}/2026-11-20T02-00Z/manifest.json"
    store.put(key, json.dumps(manifest).encode())
    return key


@pytest.mark.parametrize(
    ("name", "mirror", "etags"),
    [
        ("rclone", True, True),
        ("moto", False, False),
        ("rclone", False, False),
        ("moto", True, True),
    ],
)
@pytest.mark.exhaustive(after=1)
def test_a_run_from_a_report(name, mirror, etags, tmp_path, request):
    server: S3Server = request.getfixturevalue(f"{name}_server")
    server.create_bucket("reported")
    prefix = f"{uuid.uuid4().hex}/a b+c/"
    with opened("s3://reported/", **reach(server)) as store:
        for key, data in images().items():
            store.put(prefix + key, data)
        key = report(store, prefix, images(), etags=etags)
        store.put(f"{prefix}a/99.png", png(99))
        source: dict[str, Any] = {"url": f"s3://reported/{prefix}", **reach(server)}
        listed = {**source, "exclude": ["a/99.png"]}
        source["inventory"] = {"url": f"s3://reported/{key}"}
        lab = Lab(source, str(tmp_path / "storage"), tmp_path / "out", {**FIELDS, "mirror": mirror})

        planned = lab.plan()
        assert "reported_source" in {warning["code"] for warning in planned["warnings"]}
        built = lab.prepare()
        assert built["status"] == "built"
        assert lab.check().keys() == {built["version"]}
        assert lab.prepare()["status"] == "reused"
        plain = Lab(listed, str(tmp_path / "other"), tmp_path / "out", lab.fields).prepare()
        assert plain["digest"] == built["digest"]
        assert (plain["inputs"] == built["inputs"]) is etags

        store.put(f"{prefix}a/01.png", png(77, width=11))  # since the report
        fresh = Lab(source, str(tmp_path / "fresh"), tmp_path / "out", lab.fields)
        with pytest.raises(LarderError) as caught:
            fresh.prepare()
        assert caught.value.code == "run.failed", str(caught.value)


@pytest.mark.parametrize("target_url", ["s3://reported/", "memory://without-etags"])
def test_objects_without_etags_are_copied_as_they_are_now(target_url, moto_server):
    """Small and in parts, through this machine and by the server; the size must be that listed."""
    moto_server.create_bucket("reported")
    own = uuid.uuid4().hex
    bodies = {"small": b"x" * 1000, "large": bytes(range(256)) * (12 << 12)}
    with opened("s3://reported/", **reach(moto_server)) as source:
        infos = [
            source.put(f"{own}/{name}", data)._replace(etag="") for name, data in bodies.items()
        ]
        wrong = infos[1]._replace(size_bytes=infos[1].size_bytes - 1)
        with opened(target_url, **reach(moto_server)) as target:
            limits = CopyLimits(
                4, ByteBudget(64 << 20), part_bytes=5 << 20, server_copy_bytes=8 << 20
            )
            copied: list[CopiedObject] = []
            for objects, failed in ((infos, []), ([wrong], [f"{own}/large"])):
                failures = copy_batch(
                    source,
                    target,
                    objects,
                    prefix=f"copy {failed}/",
                    limits=limits,
                    progress=NullProgress(),
                    copied=copied.append,
                )
                assert [failure.key for failure in failures] == failed
            assert sorted(row.etag for row in copied) == ["", ""]
            assert {name: target.get(f"copy []/{own}/{name}") for name in bodies} == bodies
