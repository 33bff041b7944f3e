"""The inventory: the objects in the source, streamed from a listing into a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

from larder.config.globs import Selection
from larder.errors import ConfigError, Failure
from larder.manifest.digest import RowDigest
from larder.manifest.files import ManifestFile, write_manifest
from larder.manifest.schemas import OBJECTS
from larder.progress import Progress
from larder.store.base import ObjectInfo, Readable
from larder.transfer.report_inventory import Reported
from larder.units import format_count

__all__ = ["IDENTITY", "Inventory", "LeftOut", "object_batches", "take_inventory"]

BATCH_ROWS = 10_000

SHOWN_KEYS = 5
"""Maximum number of excluded keys kept by name."""

IDENTITY = ["key", "size_bytes", "etag"]
"""The columns of OBJECTS that the digest of an inventory covers."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Objects that were listed but not included: their number, and their first keys."""

    count: int = 0
    keys: tuple[str, ...] = ()

    def and_more(self, keys: Sequence[str]) -> LeftOut:
        """These objects and further ones."""
        room = SHOWN_KEYS - len(self.keys)
        return LeftOut(self.count + len(keys), (*self.keys, *keys[:room]))


@dataclass(frozen=True, slots=True)
class Inventory:
    """The objects at a source at one time.

    Attributes:
        file: Manifest of schema OBJECTS, ordered by key.
        objects: Number of objects included.
        bytes: Their total size.
        listed: Number of objects in the listing, included or not.
        digest: sha256 hex over the ordered keys, sizes and etags, without times.
        not_included: Objects that match no glob of ``source.include``.
        excluded: Objects that match one, but also a glob of ``source.exclude``.
        report: The report that they come from; None: the source was listed.
        unlisted: Number of files and directories that could not be listed.
        failures: The first of them.
    """

    file: ManifestFile
    objects: int
    bytes: int
    listed: int
    digest: str
    not_included: LeftOut
    excluded: LeftOut
    report: Reported | None = None
    unlisted: int = 0
    failures: tuple[Failure, ...] = ()


def take_inventory(
    store: Readable,
    include: Sequence[str],
    exclude: Sequence[str],
    out: Path,
    progress: Progress,
    report: Reported | None = None,
) -> Inventory:
    """List a source, and keep the objects that are included and not excluded.

    Memory is that of one row group, whatever the number of objects.

    Args:
        store: The source.
        include: Globs of keys.
        exclude: Globs of keys to exclude from those.
        out: The manifest to write; temporary files are written next to it.
        progress: Reports progress of stage ``inventory``.
        report: Lists the objects instead of the source itself.

    Raises:
        ConfigError: ``config.empty_source``: no object is left; says what was listed and matched.
            ``config.inventory``: the report cannot be used.
        StoreError: The listing is refused or fails; a partial listing is never used.
    """
    tally = _Tally(include, exclude, progress)
    progress.start("inventory")
    pages = report.pages(out.parent) if report else store.list()
    file = write_manifest(out, OBJECTS, tally.batches(pages))
    progress.finish("inventory")
    if not tally.objects:
        raise tally.nothing(store)
    return Inventory(
        file=file,
        objects=tally.objects,
        bytes=tally.bytes,
        listed=tally.listed,
        digest=tally.digest.hexdigest(),
        not_included=tally.not_included,
        excluded=tally.excluded,
        report=report,
    )


class _Tally:
    """Counts and digests objects."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str], progress: Progress) -> None:
        self.objects = self.bytes = self.listed = 0
        self.digest = RowDigest()
        self.not_included = self.excluded = LeftOut()
        self._globs = (_named(include), _named(exclude))
        self._included = Selection(include)
        self._excluded = Selection(exclude)
        self._progress = progress

    def batches(self, pages: Iterator[list[ObjectInfo]]) -> Iterator[pa.RecordBatch]:
        """Batches of the included objects of a listing."""
        rows: list[ObjectInfo] = []
        for page in pages:
            self.listed += len(page)
            rows += self._taken(page)
            if len(rows) >= BATCH_ROWS:
                yield self._count(rows)
                rows = []
        if rows:
            yield self._count(rows)

    def _taken(self, page: list[ObjectInfo]) -> list[ObjectInfo]:
        matched = [info for info in page if self._included(info.key)]
        if len(matched) < len(page):
            others = [info.key for info in page if not self._included(info.key)]
            self.not_included = self.not_included.and_more(others)
        taken = [info for info in matched if not self._excluded(info.key)]
        if len(taken) < len(matched):
            others = [info.key for info in matched if self._excluded(info.key)]
            self.excluded = self.excluded.and_more(others)
        return taken

    def _count(self, rows: list[ObjectInfo]) -> pa.RecordBatch:
        size_bytes = sum(info.size_bytes for info in rows)
        self.objects += len(rows)
        self.bytes += size_bytes
        batch = _batch(rows)
        self.digest.update_batch(batch.select(IDENTITY))
        self._progress.advance("inventory", objects=len(rows), bytes=size_bytes)
        return batch

    def nothing(self, store: Readable) -> ConfigError:
        """The error that no object is left, with what was listed, matched and excluded."""
        include, exclude = self._globs
        listed = f"{format_count(self.listed, 'object')} listed"
        hint = "check source.include and source.exclude; globs match keys below source.url"
        if not self.listed:
            message, hint = "the source is empty", "check source.url and its prefix"
        elif self.not_included.count == self.listed:
            message = f"{listed}, none matches include {include}"
        else:
            message = (
                f"{listed}, {self.excluded.count:,} match include {include}, and exclude {exclude}"
                " excludes all of them"
            )
        return ConfigError("config.empty_source", message, where=store.url, hint=hint)


def _named(globs: Sequence[str]) -> str:
    return ", ".join(glob if glob.strip() else repr(glob) for glob in globs)


def object_batches(infos: Iterable[ObjectInfo]) -> Iterator[pa.RecordBatch]:
    """Batches of schema OBJECTS for listed objects."""
    stream = iter(infos)
    return map(_batch, iter(lambda: list(islice(stream, BATCH_ROWS)), []))


def _batch(rows: Sequence[ObjectInfo]) -> pa.RecordBatch:
    columns = [
        pa.array([info.key for info in rows], pa.string()),
        pa.array([info.size_bytes for info in rows], pa.int64()),
        pa.array([info.etag for info in rows], pa.string()),
        pa.array([info.modified_us for info in rows], pa.timestamp("us", tz="UTC")),
        pa.array([info.checksum for info in rows], pa.string()),
    ]
    unknown = [pa.nulls(len(rows), field.type) for field in list(OBJECTS)[len(columns) :]]
    return pa.record_batch([*columns, *unknown], schema=OBJECTS)
