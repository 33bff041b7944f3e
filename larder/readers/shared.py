"""version.json, read once by all processes of a machine that open a version at about the same time.

A tag may move at any moment, so it is read by every process; what a version is follows from its
ID. But a version that was cleaned may be made again with other names of files, so what is shared is
used for ten minutes: ranks of a job start together.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from larder.disk import disk_errors, write_file
from larder.errors import ConfigError, DamageError, StoreError
from larder.manifest.digest import sha256_hex
from larder.store.base import Store
from larder.store.download import locked
from larder.versions.documents import VersionDocument, parse_document
from larder.versions.publish import read_version

_SHARED_SECONDS = 600.0


def read_shared_version(store: Store, version: str, directory: Path) -> VersionDocument | None:
    """version.json, or None if there is no such version; from a bucket through a shared file.

    Where no file can be written in the directory, it is read from the store.
    """
    place = store.features.place
    if place is None:
        return read_version(store, version)
    path = directory / f"{version}-{sha256_hex(repr(place).encode())[:16]}.json"
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{path.name}.lock")):
            return _shared(path) or read_version(store, version, partial(write_file, path))
    except (ConfigError, StoreError) as error:
        if error.code not in ("config.path", "store.full"):
            raise
        return read_version(store, version)


def _shared(path: Path) -> VersionDocument | None:
    """What another process has read a moment ago, if it is whole."""
    try:
        if time.time() - path.stat().st_mtime > _SHARED_SECONDS:
            return None
        return parse_document(VersionDocument, path.read_bytes(), str(path))
    except (OSError, DamageError):
        return None
