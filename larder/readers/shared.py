"""What processes of one machine that open a version in a bucket at about the same time read once.

What a version is follows from its ID, so all of them share version.json. But a version that was
cleaned may be made again with other names of files, so what is shared is used for ten minutes:
ranks of a job start together. A tag may move at any moment, so that is shared only by ranks that
one launcher has started, and only when each opens the tag for the first time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from larder.disk import disk_errors, write_file
from larder.errors import ConfigError, DamageError, StoreError
from larder.manifest.digest import sha256_hex
from larder.store.base import Store
from larder.store.download import locked
from larder.versions.documents import VersionDocument, parse_document
from larder.versions.publish import read_version
from larder.versions.tags import read_tag

T = TypeVar("T")

_SHARED_SECONDS = 600.0

_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""How many ranks torchrun and Open MPI have started on this machine."""

_opened: set[Path] = set()


def read_shared_version(store: Store, version: str, directory: Path) -> VersionDocument | None:
    """version.json, or None if there is no such version; from a bucket through a shared file."""
    path = _path(store, directory, version)
    if path is None:
        return read_version(store, version)

    def read() -> VersionDocument | None:
        return _version(path) or read_version(store, version, partial(write_file, path))

    return _through_file(path, read, partial(read_version, store, version))


def read_shared_tag(store: Store, tag: str, directory: Path) -> str | None:
    """The ID of the version that a tag names, or None if there is no such tag."""
    path, launcher = _path(store, directory, f"tag-{tag}"), _launcher()
    if path is None or launcher is None or path in _opened:
        return _tagged(store, tag)
    _opened.add(path)

    def read() -> str | None:
        tagged = _by_launcher(path)
        if launcher not in tagged and (version := _tagged(store, tag)):
            tagged[launcher] = version, time.time()
            write_file(path, json.dumps(tagged).encode())
        return tagged[launcher][0] if launcher in tagged else None

    return _through_file(path, read, partial(_tagged, store, tag))


def _path(store: Store, directory: Path, name: str) -> Path | None:
    """The file that is shared of a store; none for a directory, which may be read at any time."""
    place = store.features.place
    if place is None:
        return None
    return directory / f"{name}-{sha256_hex(repr(place).encode())[:16]}.json"


def _through_file(path: Path, read: Callable[[], T], read_alone: Callable[[], T]) -> T:
    """Read with a file locked; in another way where no file can be written."""
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{path.name}.lock")):
            return read()
    except (ConfigError, StoreError) as error:
        if error.code not in ("config.path", "store.full"):
            raise
        return read_alone()


def _version(path: Path) -> VersionDocument | None:
    """What another process has read a moment ago, if it is whole."""
    try:
        if time.time() - path.stat().st_mtime > _SHARED_SECONDS:
            return None
        return parse_document(VersionDocument, path.read_bytes(), str(path))
    except (OSError, DamageError):
        return None


def _tagged(store: Store, tag: str) -> str | None:
    named = read_tag(store, tag)
    return None if named is None else named.version


def _by_launcher(path: Path) -> dict[str, tuple[str, float]]:
    """By launcher, the version that its ranks share, and when it was read: those of late."""
    oldest = time.time() - _SHARED_SECONDS
    try:
        tagged = json.loads(path.read_bytes()).items()
        return {name: (str(version), at) for name, (version, at) in tagged if at > oldest}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _launcher() -> str | None:
    """What has started this process, if it has started other ranks here, too."""
    if not any(os.environ.get(name, "1") != "1" for name in _LOCAL_RANKS):
        return None
    if allocation := os.environ.get("DET_ALLOCATION_ID"):
        return allocation  # Determined starts each rank by a process of its own
    process = os.getppid()
    try:
        facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return f"{process} since {facts[19]}"
