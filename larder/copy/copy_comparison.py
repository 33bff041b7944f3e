"""Lists a source and a storage, buckets at the same time, and compares them. Writes local files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from larder.copy.copy_matches import Outstanding, outstanding
from larder.copy.copy_place import CopyPlace, Origin
from larder.copy.copy_receipts import CopyReceipt, find_receipts
from larder.copy.copy_record import CopyDocument, read_record, record_rows, sorted_receipts
from larder.copy.copy_settings import CopySettings
from larder.errors import ConfigError, Failure, FatalError
from larder.jobs.results import BatchReport, RunError
from larder.manifest.query import Stream
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import SortedFile, sort_to_file
from larder.progress import Progress
from larder.samples.arrow_columns import Flags
from larder.source.inventory import Listing, list_source, object_batches
from larder.source.selection import KeyRule, Unlisted, without_own
from larder.store.base import Store
from larder.store.own_files import listed_pages


class CopyState(NamedTuple):
    """State of the copies at a storage before the storage is listed.

    ``record`` is of this source. ``displaced`` is the URL of another source that the storage has a
    record of, or empty. ``unlisted`` is complete once the source's listing has ended.
    """

    source: Store
    root: Store
    place: CopyPlace
    record: CopyDocument | None
    displaced: str
    unlisted: Unlisted


class CopyComparison(NamedTuple):
    """Objects at a source and at a storage.

    ``objects`` are those that the globs select, and ``stored`` all objects at the storage.
    ``receipts`` are from runs that did not end. The ``pieces`` can be read once.
    """

    objects: Listing
    stored: SortedFile
    receipts: list[CopyReceipt]
    pieces: Iterator[Outstanding]


def read_state(
    settings: CopySettings, note_unlisted: Callable[[Failure], None] | None = None
) -> CopyState:
    """Open both places, and read the record; ``note_unlisted`` gets paths that cannot be listed."""
    unlisted = Unlisted(settings.source.include, settings.source.exclude, note_unlisted)
    source, root = settings.open_source(unlisted=unlisted), settings.open_root()
    place = CopyPlace(Origin.of(settings.source, source))
    record = read_record(root, place)
    if record is not None and record.source != place.origin:
        return CopyState(source, root, place, None, record.source.url, unlisted)
    return CopyState(source, root, place, record, "", unlisted)


@contextmanager
def compared(
    settings: CopySettings, state: CopyState, folder: Path, progress: Progress
) -> Iterator[CopyComparison]:
    """List the source and the storage, and compare them while a ``with`` block reads the pieces.

    Paths in the source that cannot be listed are in ``state.unlisted``; the storage's objects below
    them are ignored. ``run.failed``: the source has only such paths. ``config.empty_source``: the
    source is empty. A partial listing is never used.
    """
    source, root = state.source, state.root
    include, exclude = KeyRule(settings.source.include), KeyRule(settings.source.exclude)

    def selected(keys: pa.Array) -> Flags:
        return include(keys) & ~exclude(keys) & ~state.unlisted.may_have(keys)

    with _listing(root, folder / "stored.arrow") as listing:
        objects = _objects(settings, state, folder, progress)
        receipts = find_receipts(root, state.place)
        stored = listing()
    assert objects.rows is not None, "they are in a file"
    progress.start("compare", objects=objects.objects)
    with sorted_receipts(root, receipts, folder) as unread:
        pieces = outstanding(
            Stream(OBJECTS, objects.rows.read()),
            Stream(OBJECTS, stored.read()),
            Stream(OBJECTS, unread),
            Stream(OBJECTS, record_rows(root, state.place, state.record)),
            md5=source.features.etag_is_md5 and root.features.etag_is_md5,
            sizes=settings.limits.verify == "size",
            markers=not root.features.local_path,
            selected=selected,
        )
        yield CopyComparison(objects, stored, receipts, _counted(pieces, progress))
    progress.finish("compare")


def _objects(settings: CopySettings, state: CopyState, folder: Path, progress: Progress) -> Listing:
    """List the selected objects; ``run.failed``: none, and some paths cannot be listed."""
    report = None
    if settings.source.inventory:
        from larder.source.reports import open_report

        report = open_report(settings.source.inventory, settings.source.url, settings.open_source)
    try:
        globs = settings.source.include, settings.source.exclude
        return list_source(state.source, *globs, folder / "objects.arrow", progress, report)
    except ConfigError:
        if state.unlisted.failures.count:
            raise not_listed(state) from None
        raise


def not_listed(state: CopyState) -> RunError:
    """Return the error for a run that changes nothing because some paths cannot be listed."""
    report = BatchReport.of(state.unlisted.failures)
    return RunError("inventory", report, "nothing was changed; fix or exclude them, then run again")


@contextmanager
def _listing(root: Store, path: Path) -> Iterator[Callable[[], SortedFile]]:
    """List the storage in another thread until the result is requested, or the block ends.

    A directory is listed when the result is requested.
    """
    stop = threading.Event()
    stored = chain.from_iterable(without_own(listed_pages(root)))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in object_batches(stored):
            if stop.is_set():
                raise FatalError("run.interrupted", "the listing is not needed any more")
            yield batch

    rows = Stream(OBJECTS, batches())
    if root.features.local_path:  # nothing to wait for: two threads would only take turns
        yield partial(sort_to_file, rows, ("key",), path)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="listing") as pool:
        listed = pool.submit(sort_to_file, rows, ("key",), path)
        try:
            yield listed.result
        finally:
            stop.set()


def _counted(pieces: Iterator[Outstanding], progress: Progress) -> Iterator[Outstanding]:
    for piece in pieces:
        progress.advance("compare", objects=piece.due.num_rows + piece.same.num_rows)
        yield piece
