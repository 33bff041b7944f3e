"""What processes of one machine that open a version at about the same time read once.

What a version is follows from its ID, so all of them share version.json of a bucket. But a version
that was cleaned may be made again with other names of files, so it is shared for ten minutes: ranks
of a job start together. A tag may move at any moment, so only ranks that one launcher has started
share what it names, each of them once, for a minute.
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
"""The version that a tag named, when it was read, and the local ranks that have opened it."""


def read_shared_version(store: Store, version: str, directory: Path) -> VersionDocument | None:
    """version.json, or None if there is no such version; from a bucket through a shared file."""
    if store.features.place is None:  # a directory, which costs no requests
        return read_version(store, version)
    path = _path(store, directory, version)

    def read() -> VersionDocument | None:
        try:
            return _version(path) or read_version(store, version, partial(write_file, path))
        except RetryableError:  # nobody answers, and a version is most likely what it was
            if (document := _version(path, math.inf)) is None:
                raise
            return document

    return _through_file(path, read, partial(read_version, store, version))


def read_shared_tag(store: Store, tag: str, directory: Path) -> str | None:
    """The ID of the version that a tag names, or None if there is no such tag."""

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
    """The file through which processes share what they read."""
    place = store.features.place or store.url
    return directory / f"{name}-{sha256_hex(repr(place).encode())[:16]}.json"


def _through_file(path: Path, read: Callable[[], T], read_alone: Callable[[], T]) -> T:
    """Read with a file locked; or alone, where it cannot be locked or written."""
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
    """What another process has read a moment ago, if it is whole."""
    try:
        if time.time() - path.stat().st_mtime > seconds:
            return None
        return parse_document(VersionDocument, read_file(path), str(path))
    except (OSError, DamageError):
        return None


def _entries(path: Path) -> dict[str, _Entry]:
    """By launcher, what its ranks share: the recent entries of a file that is whole."""
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
    """What has started the ranks of this machine, and the number of this one among them; None if
    this process is none of them.

    There may be processes of a wrapper between a rank and its launcher, and launchers that were
    started by others, such as torchrun by srun: the number has those of all.
    """
    process, number = os.getpid(), ""
    try:
        while rank := _local_rank(process):
            number += f"{rank} "
            process = int(_facts(process)[1])
        launcher = f"{os.uname().nodename} {process} {int(_facts(process)[19])}"
        return (launcher, number) if number else None
    except (OSError, ValueError):  # not Linux, or it has ended
        return None


def _local_rank(process: int) -> str:
    """The local rank that a process was started with; empty if none, or if another user's."""
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
    """What /proc says of a process after its name, which may contain anything."""
    return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
