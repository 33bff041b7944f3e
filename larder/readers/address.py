"""Addresses of versions, and opening a version by its address."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from larder.config.urls import check_url
from larder.errors import DamageError
from larder.readers.access import DatasetAccess
from larder.readers.data import Data
from larder.readers.determined import check_emitted, emitted_location
from larder.readers.launcher import is_one_of_several
from larder.readers.sagemaker import channel_location, with_shards
from larder.readers.schedule import invalid
from larder.store import object_url
from larder.store.download import cache_directory
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_version
from larder.versions.tags import find_version, missing_version

_ADDRESS = re.compile(
    r"(?P<root>(?:.*/)?larder/(?P<dataset>[a-z0-9][a-z0-9_-]*))"
    r"(?:@(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)|/versions/(?P<version>[0-9a-f]{32}))?/?",
    re.DOTALL,
)


def _parsed(url: str) -> tuple[str, str, str]:
    """Parse ``ROOT/larder/DATASET``, ``...@TAG``, ``...@ID`` or ``.../versions/ID``.

    Returns the dataset's URL or path, the dataset, and the tag, the ID or the first digits of an
    ID. Without a name, the tag is ``latest``.
    """
    if url:
        check_url(url, where="address of the dataset")
    match = _ADDRESS.fullmatch(url)
    if match is None:
        hint = "write ROOT/larder/DATASET@TAG, such as s3://bucket/larder/imagenet@latest"
        raise invalid("not the address of a dataset", url, hint)
    return match["root"], match["dataset"], match["name"] or match["version"] or "latest"


def open_data(
    url: str | None,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    cache_dir: str | Path | None = None,
) -> Data:
    root, dataset, name = _parsed(_job_location() if url is None else url)
    access = DatasetAccess(root, cache_directory(cache_dir), endpoint, region, profile)
    document = _read(access, dataset, name)
    if url is None:
        check_emitted(document.id, document.digest)
    if url is None and (links := with_shards(document, access)):
        # SageMaker channels have no caches.
        return Data(replace(document, cache=None), replace(access, root=str(links)))
    return Data(document, access)


def _job_location() -> str:
    """Return the version's location from the config that Larder emitted for the running job."""
    return os.environ.get("LARDER_LOCATION") or channel_location() or emitted_location()


def _read(access: DatasetAccess, dataset: str, name: str) -> VersionDocument:
    store = access.store()
    version = find_version(store, dataset, name)
    if not version.startswith(name) and is_one_of_several():
        _warn_of_tag(f"{access.root}@", name, version)
    document = read_version(store, version)
    if document is None:  # a tag may name a deleted version
        raise missing_version(store, dataset, version)
    if (document.dataset, document.id) != (dataset, version):
        message = f"the document is that of version {document.id} of {document.dataset}"
        where = object_url(store.url, layout.version_key(version))
        raise DamageError("damage.manifest", message, where=where)
    return document


@cache
def _warn_of_tag(root: str, tag: str, version: str) -> None:
    """Warn a rank once that the other ranks may open another version."""
    text = "%s%s: the tag may move before all ranks have opened it; open %s%s, the version it names"
    logging.getLogger("larder").warning(text, root, tag, root, version)
