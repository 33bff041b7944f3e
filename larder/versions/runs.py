"""The records of runs: which run published a version or moved a tag, when, where and from what.

Records are beside the version and no part of it. Nothing names them and no identity covers them. So
they may contain times, which version.json cannot. A version is whole without them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Annotated

from larder.errors import DamageError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import read_sealed, seal
from larder.names import FileName, HexId, PlainName, TextRule
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import listed, published_file_errors, read_optional
from larder.versions import layout

RUN_FORMAT = "larder-run-1"

NAMES = 1_000
"""Maximum number of samples of a kind whose keys are in a record."""

_PACKAGES = ("larder-data", "lmdb", "numpy", "pillow", "pyarrow", "simplejpeg")

Time = Annotated[
    str, TextRule("a time in UTC", r"\d{4}(?:-\d{2}){2}T\d{2}(?::\d{2}){2}(?:\.\d{3})?Z")
]


def now() -> str:
    """Return the time in UTC, by the clock of this machine."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def packages() -> dict[str, str]:
    """Return the versions of Larder and of the installed packages that encode."""
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run that published a version or moved a tag.

    Attributes:
        version: The version beside which the record is: ``after``, or ``before`` if the tag was
            deleted.
        command: Name of the command, such as ``prepare``.
        began: Start of the run, by the clock of its machine.
        host: Name of its machine.
        published: Whether it published the version, or only moved the tag.
        packages: The versions of Larder and of the packages that encode, by name.
        flow_run: Name and ID of the flow run; empty if there was none.
        tag: The tag that it moved; None if it moved none.
        before: ID of the version that the tag named before; None if there was no tag.
        after: ID of the version that the tag names since; None if the tag was deleted.
        previous: ID of the version with which the samples were compared; None if there was none.
        changes: Number of samples by kind; see `larder.growth.compare.Changes`.
        names: Keys of the first `NAMES` samples of each kind.
        milliseconds: Duration of each stage.
    """

    dataset: PlainName
    version: HexId
    command: PlainName
    began: Time = field(default_factory=now)
    host: str = field(default_factory=platform.node)
    published: bool = False
    packages: Mapping[str, str] = field(default_factory=packages)
    flow_run: str = ""
    tag: FileName | None = None
    before: HexId | None = None
    after: HexId | None = None
    previous: HexId | None = None
    changes: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    format: str = RUN_FORMAT


def write_run(root: Store, record: RunRecord) -> str:
    data = seal(record)
    key = layout.run_key(record.version, record.began, sha256_hex(data))
    with published_file_errors():
        root.put(key, data)
    return key


def read_run(root: Store, key: str) -> RunRecord | None:
    """Read a record; None if it is gone. DamageError: it is damaged, or of another version."""
    data = read_optional(root, key)
    if data is None:
        return None
    where = object_url(root.url, key)
    record = read_sealed(RunRecord, data, where, RUN_FORMAT, hint="delete it; nothing needs it")
    if not key.startswith(layout.runs_prefix(record.version)):
        message = f"it is the record of version {record.version}"
        raise DamageError("damage.manifest", message, where=where, hint="delete it")
    return record


def read_runs(root: Store, version: str) -> Iterator[RunRecord]:
    """Yield the records beside a version, the oldest first, without damaged ones."""
    for info in listed(root, layout.runs_prefix(version)):
        with suppress(DamageError):
            if record := read_run(root, info.key):
                yield record
