"""Reads of version.json and tags, shared by processes of a machine that start together.

A version's ID decides its content, so all processes share version.json of a bucket. But a cleaned
version may be made again with other names of files. So version.json is shared for ten minutes only,
which is enough for the ranks of a job. A tag may move at any moment. So only ranks of one launcher
share the version that a tag names, each rank once, for a minute.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from larder.disk import disk_errors, read_file, write_file
from larder.errors import ConfigError, DamageError, RetryableError, StoreError
from larder.manifest.digest import sha256_hex
from larder.readers.launcher import LAUNCHERS, is_numbered_only
from larder.store.base import Store
from larder.store.download import locked
from larder.versions import layout
from larder.versions.documents import VersionDocument, parse_document
from larder.versions.publish import read_version
from larder.versions.tags import read_tag

T = TypeVar("T")

_VERSION_SECONDS, _TAG_SECONDS = 600.0, 60.0

_Entry = tuple[str, float, list[str]]
"""Version that a tag named, time of reading, and the local ranks that have opened it."""


def read_shared_version(store: Store, version: str, directory: Path) -> VersionDocument | None:
    """Read version.json, from a bucket through a shared file; None if there is no such version."""
    if store.features.place is None:  # a directory, which costs no requests
        return read_version(store, version)
    path = _path(store, directory, version)

    def read() -> VersionDocument | None:
        try:
            return _version(path) or read_version(store, version, partial(write_file, path))
        except RetryableError:  # no answer: the version most likely has not changed
            if (document := _version(path, math.inf)) is None:
                raise
            return document

    return _through_file(path, read, partial(read_version, store, version))


def read_shared_tag(store: Store, tag: str, directory: Path) -> str | None:
    """Return the ID of the version that a tag names, or None if there is no such tag."""

    def read_alone() -> str | None:
        named = read_tag(store, tag)
        return None if named is None else named.version

    launch = _launch()
    if launch is None:
        return read_alone()
    launcher, rank = launch
    path = _path(store, directory, f"tag-{tag}")

    def read() -> str | None:
        entries = _entries(path)
        version: str | None
        version, at, ranks = entries.get(launcher, ("", 0.0, []))
        if not version or rank in ranks:
            version, at, ranks = read_alone(), time.time(), []
        if version is not None:
            entries[launcher] = version, at, [*ranks, rank]
            write_file(path, json.dumps(entries).encode())
        return version

    return _through_file(path, read, read_alone)


def _path(store: Store, directory: Path, name: str) -> Path:
    """Return the path of the file that processes share."""
    place = store.features.place or store.url
    return directory / f"{name}-{sha256_hex(repr(place).encode())[:16]}.json"


def _through_file(path: Path, read: Callable[[], T], read_alone: Callable[[], T]) -> T:
    """Read with a file locked; or alone, if the file cannot be locked or written."""
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{path.name}.lock")):
            return read()
    except (ConfigError, StoreError) as error:
        if error.code not in ("config.path", "store.full"):
            raise
        return read_alone()


def _version(path: Path, seconds: float = _VERSION_SECONDS) -> VersionDocument | None:
    """Return the version that another process has read recently, if the file is whole."""
    try:
        if time.time() - path.stat().st_mtime > seconds:
            return None
        return parse_document(VersionDocument, read_file(path), str(path))
    except (OSError, DamageError):
        return None


def _entries(path: Path) -> dict[str, _Entry]:
    """Read the recent entries of the shared file by launcher; empty if the file is damaged."""
    now = time.time()
    try:
        return {
            launcher: (version, at, [str(rank) for rank in ranks])
            for launcher, (version, at, ranks) in json.loads(read_file(path)).items()
            if layout.VERSION_ID.fullmatch(version) and 0 <= now - at < _TAG_SECONDS
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _launch() -> tuple[str, str] | None:
    """Return the launcher process of this machine's ranks, and this rank's number; None if no rank.

    A wrapper may run between a rank and its launcher, and one launcher may start another, as srun
    starts torchrun. So the number joins the numbers of the process and of all these ancestors.
    """
    process, number = os.getpid(), ""
    try:
        while rank := _local_rank(process):
            number += f"{rank} "
            process = int(_facts(process)[1])
        launcher = f"{os.uname().nodename} {process} {int(_facts(process)[19])}"
        return (launcher, number) if number else None
    except (OSError, ValueError):  # not Linux, or the process has ended
        return None


def _local_rank(process: int) -> str:
    """Return the local rank that a process was started with; empty if none, or another user's."""
    try:
        text = Path(f"/proc/{process}/environ").read_text(errors="replace")
    except PermissionError:
        return ""
    variables = dict(line.partition("=")[::2] for line in text.split("\0"))
    ranks = (
        variables.get(each.local, "") for each in LAUNCHERS if not is_numbered_only(each, variables)
    )
    return next(filter(None, ranks), "")


def _facts(process: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, which may contain anything."""
    return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
