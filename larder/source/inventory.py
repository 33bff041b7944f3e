"""The inventory of a source: its objects at one time, streamed from a listing into a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import ConfigError, Failure, Failures
from larder.manifest.manifest_files import ManifestFile, ManifestWriter, write_manifest
from larder.manifest.query import Stream
from larder.manifest.row_digest import RowDigest
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import SortedFile, sort_to_file
from larder.progress import NullProgress, Progress
from larder.samples.arrow_columns import Flags, arrow_flags
from larder.source.selection import KeyRule, without_own
from larder.source.unfit import ARCHIVED, archived_of
from larder.store.base import ObjectInfo, Readable
from larder.units import format_count

if TYPE_CHECKING:
    from larder.source.reports import SourceReport

SHOWN_KEYS = 5
"""Maximum number of excluded keys kept by name."""

IDENTITY = ["key", "size_bytes", "etag"]
"""The columns of OBJECTS that the digest of an inventory covers."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Objects that were listed but not included: their number, and their first keys."""

    count: int = 0
    keys: tuple[str, ...] = ()

    def and_more(self, keys: Sequence[str], count: int) -> LeftOut:
        """Add ``count`` objects; ``keys`` are the first of their keys."""
        room = SHOWN_KEYS - len(self.keys)
        return LeftOut(self.count + count, (*self.keys, *keys[:room]))


class InContainers(NamedTuple):
    """Counts of a source's archives and tables, of containers read for lack of an index, and of
    contained objects, included or not.
    """

    containers: int
    read: int
    objects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The result of listing a source.

    Attributes:
        listed: Number of objects in the listing, included or not.
        not_included: Objects that match no glob of ``source.include``.
        excluded: Objects that match one, but also a glob of ``source.exclude``.
        report: The report that listed the objects; None if the source was listed.
        rows: The included objects, of schema OBJECTS and ordered by key; only from `list_source`.
        classes: Number and bytes of the included objects of each storage class, except the standard
            class.
        archived: Manifest of objects that must be restored before reading; None if there are none.
            See `larder.source.unfit`.
    """

    objects: int
    bytes: int
    listed: int
    not_included: LeftOut
    excluded: LeftOut
    report: SourceReport | None = None
    rows: SortedFile | None = None
    classes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    archived: ManifestFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory(Listing):
    """The objects at a source at one time.

    Attributes:
        digest: sha256 hex over the ordered keys, sizes and etags, without times.
        unlisted: Number of files and directories that could not be listed.
        failures: The first of these failures.
        empty: Rows of tables without a part, which ``on_bad_sample`` leaves out.
        labels: The classes from columns of tables, as rows of
            `larder.source.expand.expanded.LABELS` in any order; None if there are none.
    """

    file: ManifestFile
    digest: str
    unlisted: int = 0
    failures: tuple[Failure, ...] = ()
    empty: Failures = field(default_factory=Failures)
    inside: InContainers | None = None
    labels: ManifestFile | None = None

    @property
    def considered(self) -> int:
        """Number of objects to which globs were applied."""
        inside = self.inside.objects - self.inside.containers if self.inside else 0
        return self.listed + inside


def parted(batch: pa.RecordBatch, wanted: Flags, others: LeftOut) -> tuple[pa.RecordBatch, LeftOut]:
    if wanted.all():
        return batch, others
    unwanted = batch.column("key").filter(arrow_flags(~wanted))
    first = unwanted.slice(0, SHOWN_KEYS).to_pylist()
    return batch.filter(arrow_flags(wanted)), others.and_more(first, len(unwanted))


Written = TypeVar("Written")

BATCH_ROWS = 10_000

_CLASS = "storage_class"


def take_inventory(
    store: Readable,
    include: Sequence[str],
    exclude: Sequence[str],
    out: Path,
    progress: Progress,
    report: SourceReport | None = None,
    *,
    containers: Callable[[pa.Array], Flags] | None = None,
) -> Inventory:
    """List a source, and keep the objects that are included and not excluded.

    Objects whose keys match ``containers`` need no glob of ``include``, because their contents may
    match one. Files of `larder copy` itself at the root of the source are ignored. A partial
    listing is never used; ``config.empty_source`` if no object is left.

    Memory holds one row group, whatever the number of objects.
    """
    tally = _ListingTally(include, exclude, progress, containers)

    def write(batches: Iterator[pa.RecordBatch]) -> ManifestFile:
        return write_manifest(out, OBJECTS, map(tally.digested, batches))

    file, listed = _listed(store, tally, out, progress, report, write)
    of_listing = {each.name: getattr(listed, each.name) for each in fields(listed)}
    return Inventory(file=file, digest=tally.digest.hexdigest(), **of_listing)


def list_source(
    store: Readable,
    include: Sequence[str],
    exclude: Sequence[str],
    out: Path,
    progress: Progress,
    report: SourceReport | None = None,
) -> Listing:
    """List a source like `take_inventory`, into a file for immediate use, without a digest."""
    tally = _ListingTally(include, exclude, progress)

    def write(batches: Iterator[pa.RecordBatch]) -> SortedFile:
        return sort_to_file(Stream(OBJECTS, batches), ("key",), out)

    rows, listed = _listed(store, tally, out, progress, report, write)
    return replace(listed, rows=rows)


def _listed(
    store: Readable,
    tally: _ListingTally,
    out: Path,
    progress: Progress,
    report: SourceReport | None,
    write: Callable[[Iterator[pa.RecordBatch]], Written],
) -> tuple[Written, Listing]:
    """Write the objects of a source; return the result of ``write``, and a listing without rows."""
    progress.start("inventory")
    pages = report.pages(out.parent) if report else store.list()
    with ManifestWriter(out.with_name("archived.parquet"), ARCHIVED) as archived:
        written = write(tally.batches(pages, archived))
    progress.finish("inventory")
    some = archived.file if archived.file.rows else None
    return written, replace(tally.listing(store, report), archived=some)


def with_contents(
    inventory: Inventory, rows: Iterable[pa.RecordBatch], out: Path, where: str
) -> Inventory:
    """Replace the objects of an inventory with ``rows``, of schema OBJECTS and ordered by key;
    ``config.empty_source`` if there are none.
    """
    tally = _ListingTally(("**",), (), NullProgress())
    counted = (tally.count(batch) for batch in rows if batch.num_rows)
    file = write_manifest(out, OBJECTS, map(tally.digested, counted))
    if not tally.objects:
        message = "nothing in the archives or tables of the source is included"
        hint = "check source.include and source.exclude: globs match KEY_OF_ARCHIVE/MEMBER"
        raise ConfigError("config.empty_source", message, where=where, hint=hint)
    return replace(
        inventory,
        file=file,
        objects=tally.objects,
        bytes=tally.bytes,
        digest=tally.digest.hexdigest(),
    )


class _ListingTally:
    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str],
        progress: Progress,
        containers: Callable[[pa.Array], Flags] | None = None,
    ) -> None:
        self.objects = self.bytes = self.listed = 0
        self.digest = RowDigest()
        self.not_included = self.excluded = LeftOut()
        self.classes: dict[str, tuple[int, int]] = {}
        self._included = KeyRule(include)
        self._excluded = KeyRule(exclude)
        self._containers = containers
        self._progress = progress

    def batches(
        self, pages: Iterable[list[ObjectInfo]], archived: ManifestWriter
    ) -> Iterator[pa.RecordBatch]:
        for rows in _in_batches(chain.from_iterable(without_own(pages))):
            self.listed += len(rows)
            batch = self._taken(_with_classes(_batch(rows), rows))
            if batch.num_columns > len(OBJECTS):
                self._count_classes(batch)
                archived.append_batch(archived_of(batch))
                batch = pa.record_batch(batch.columns[: len(OBJECTS)], schema=OBJECTS)
            if batch.num_rows:
                yield self.count(batch)

    def _count_classes(self, batch: pa.RecordBatch) -> None:
        classes, sizes = batch.column(_CLASS), batch.column("size_bytes")
        for name in filter(None, classes.unique().to_pylist()):
            of_class = sizes.filter(pc.equal(classes, name))
            count, size_bytes = self.classes.get(name, (0, 0))
            size_bytes += pc.sum(of_class).as_py()
            self.classes[name] = count + len(of_class), size_bytes

    def _taken(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        included = self._included(batch.column("key"))
        if self._containers is not None:
            included |= self._containers(batch.column("key"))
        batch, self.not_included = parted(batch, included, self.not_included)
        batch, self.excluded = parted(batch, ~self._excluded(batch.column("key")), self.excluded)
        return batch

    def count(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        size_bytes = pc.sum(batch.column("size_bytes")).as_py()
        self.objects += batch.num_rows
        self.bytes += size_bytes
        self._progress.advance("inventory", objects=batch.num_rows, bytes=size_bytes)
        return batch

    def digested(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.digest.update_batch(batch.select(IDENTITY))
        return batch

    def listing(self, store: Readable, report: SourceReport | None) -> Listing:
        """Return the result, once all batches were read."""
        if not self.objects:
            raise self._nothing(store)
        return Listing(
            objects=self.objects,
            bytes=self.bytes,
            listed=self.listed,
            not_included=self.not_included,
            excluded=self.excluded,
            report=report,
            classes=dict(sorted(self.classes.items())),
        )

    def _nothing(self, store: Readable) -> ConfigError:
        """Return the error that no object is left, with counts of listed and excluded objects."""
        message = f"{format_count(self.listed, 'object')} listed, none included"
        if self.excluded.count:
            message += f", {self.excluded.count:,} excluded"
        hint = "check source.url, include and exclude; globs match keys below source.url"
        return ConfigError("config.empty_source", message, where=store.url, hint=hint)


def object_batches(infos: Iterable[ObjectInfo]) -> Iterator[pa.RecordBatch]:
    return map(_batch, _in_batches(infos))


def _in_batches(infos: Iterable[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    stream = iter(infos)
    return iter(lambda: list(islice(stream, BATCH_ROWS)), [])


def _with_classes(batch: pa.RecordBatch, rows: Sequence[ObjectInfo]) -> pa.RecordBatch:
    """Add the storage classes of the rows, unless all are of the standard class."""
    classes = [info.storage_class for info in rows]
    if not any(classes):
        return batch
    return pa.record_batch([*batch.columns, pa.array(classes)], names=[*OBJECTS.names, _CLASS])


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
