"""The record of a copy: its files and their contents.

::

    copy.json                  the last write: the source, the manifest, the failures
    manifest-SHA.parquet       every verified copy, and how it was verified
    failures-SHA.parquet       the objects that could not be copied
    pruned-SHA.parquet         what a prune was to delete
    receipts/SOURCE/           receipts of runs that have not ended; see `larder.copy.copy_receipts`
    uploads/                   large objects in progress
    work/                      the objects that a run copies, the failures of its batches

The files are below ``STORAGE/_larder/copy/``, or for a dataset's mirror below its ``work/mirror/``.

A storage has one record, of one source. A copy from another source replaces the record: earlier
copies stay, and are not pruned. Before a record names copies, a listing is compared with the writes
that the bucket acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.copy.copy_place import CopyPlace, Origin
from larder.copy.copy_receipts import CopyReceipt, receipt_rows
from larder.errors import DamageError, NotFoundError, StoreError
from larder.jobs.manifests import put_named, read_ref
from larder.manifest.manifest_files import write_manifest
from larder.manifest.query import Stream
from larder.manifest.row_digest import RowDigest
from larder.manifest.schemas import OBJECTS
from larder.manifest.sealed import StoredFile, read_sealed, seal
from larder.manifest.sort import sort, whole_keys
from larder.source.inventory import IDENTITY
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, not_kept, published_file_errors, read_optional

FORMAT = "larder-copy-2"

_HINT = "delete it: the next copy compares what is there, and writes it again"
_WORK_ABANDONED_US = 7 * 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class CopyDocument:
    """Content of copy.json, which the last copy that ended has left.

    ``manifest`` has every verified copy, also of objects that are no longer in the source.
    ``failures`` is of schema FAILURES. ``digest`` is sha256 hex over the ordered keys, sizes and
    etags at the source; ``checks`` counts the copies by check.
    """

    source: Origin
    manifest: StoredFile
    bytes: int
    digest: str
    checks: Mapping[str, int] = field(default_factory=dict)
    failures: StoredFile | None = None
    format: str = FORMAT

    @property
    def files(self) -> list[StoredFile]:
        return [self.manifest, *([self.failures] if self.failures else [])]


def read_record(root: Store, place: CopyPlace) -> CopyDocument | None:
    """Read copy.json; None if no copy has ended.

    DamageError: copy.json is damaged, or names a file that no copy writes; the next copy would
    delete that file.
    """
    data = read_optional(root, place.document)
    if data is None:
        return None
    where = object_url(root.url, place.document)
    record = read_sealed(CopyDocument, data, where, FORMAT, hint=_HINT)
    for file, role in zip(record.files, ("manifest", "failures"), strict=False):
        if file.path != place.file(role, file.sha256):
            message = f"{file.path} is not the name of a {role} file"
            raise DamageError("damage.manifest", message, where=where, hint=_HINT)
    return record


def record_rows(
    root: Store, place: CopyPlace, record: CopyDocument | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a record's manifest, ordered by key; no rows if there is no record.

    If the manifest is gone, read the record with which another run has replaced this record.
    """
    while record is not None:
        try:
            yield from read_ref(root, record.manifest, OBJECTS)
            return
        except NotFoundError:
            current = read_record(root, place)
            if current == record:
                where = object_url(root.url, place.document)
                message = f"there is no {record.manifest.path}, which it names"
                raise DamageError("damage.manifest", message, where=where, hint=_HINT) from None
            record = current


@contextmanager
def sorted_receipts(
    root: Store, receipts: Iterable[CopyReceipt], folder: Path
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the rows of receipts by key and time, no key in two batches."""
    rows, ties = Stream(OBJECTS, receipt_rows(root, receipts)), ("modified", "etag", "mirror_etag")
    with closing(sort(rows, ("key",), ties=ties, work_dir=folder)) as ordered:
        yield whole_keys(ordered, "key")


def write_record(
    root: Store,
    place: CopyPlace,
    rows: Iterable[pa.RecordBatch],
    folder: Path,
    *,
    failures: StoredFile | None,
    replaced: Iterable[StoredFile],
) -> CopyDocument:
    """Write the manifest of all verified copies, then the document that names it.

    ``rows`` are of schema OBJECTS and ordered by key; ``failures`` are the objects that could not
    be copied. Deletes the ``replaced`` files, and files of killed runs after a week.
    """
    tally = _CopyTally()
    file = write_manifest(folder / "manifest.parquet", OBJECTS, map(tally.add, rows))
    document = CopyDocument(
        source=place.origin,
        manifest=put_named(root, place.file("manifest", file.sha256), file, "manifest"),
        bytes=tally.bytes,
        digest=tally.digest.hexdigest(),
        checks=dict(sorted(tally.checks.items())),
        failures=failures,
    )
    with published_file_errors():
        root.put(place.document, seal(document))
    kept = {file.path for file in document.files}
    for key in {file.path: None for file in replaced if file.path not in kept}:
        root.delete(key)
    _remove_abandoned(root, place, kept)
    # A run with the same rows writes a manifest of the same name. Another run deletes that manifest
    # if it replaces the record of the first. The later of the two sees this: either record is good.
    while not _is_whole(root, place):
        put_named(root, document.manifest.path, file, "manifest")
        with published_file_errors():
            root.put(place.document, seal(document))
    return document


def _is_whole(root: Store, place: CopyPlace) -> bool:
    """Whether the manifest that the current record names exists."""
    record = read_record(root, place)
    return record is not None and _now(root, record.manifest.path) is not None


def _remove_abandoned(root: Store, place: CopyPlace, kept: set[str]) -> None:
    names = (place.work, f"{place.files}manifest-", f"{place.files}failures-")
    files = (info for info in listed(root, place.files) if info.key.startswith(names))
    left = [info for info in files if info.key not in kept]
    if left:
        now_us = root.head(place.document).clock_us  # by the store's clock, like the other times
        for info in left:
            if now_us - info.modified_us > _WORK_ABANDONED_US:
                root.delete(info.key)


class _CopyTally:
    """Adds up the rows of a manifest."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = RowDigest()
        self.checks: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self.bytes += pc.sum(rows.column("size_bytes"), min_count=0).as_py()
        self.digest.update_batch(rows.select(IDENTITY))
        for each in rows.column("check").value_counts().to_pylist():
            self.checks[each["values"]] += each["counts"]
        return rows


_COLUMNS = ("key", "size_bytes", "mirror_etag")


def check_kept(root: Store, prefix: str, copies: Iterable[pa.RecordBatch]) -> None:
    """Refuse copies that the storage does not have (``store.refused``).

    ``copies`` are of schema OBJECTS, ordered by key. Pages without copies are skipped where that
    takes fewer requests. A listing may be late, so an object that differs is requested once by
    itself.
    """
    listing = _OrderedListing(root, prefix)
    for batch in copies:
        for key, size_bytes, etag in zip(
            *(batch.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            if not _is_kept(listing.find(prefix + key), size_bytes, etag):
                info, where = _now(root, prefix + key), object_url(root.url, prefix + key)
                if info is None or info.size_bytes != size_bytes:
                    raise not_kept(where, size_bytes, info.size_bytes if info else None)
                if not _is_kept(info, size_bytes, etag):
                    message = "the object was replaced while this run copied"
                    raise StoreError("store.refused", message, where=where, hint="run again")


def _is_kept(info: ObjectInfo | None, size_bytes: int, etag: str | None) -> bool:
    """Whether an object is as written; some stores return no etag for a write."""
    return info is not None and info.size_bytes == size_bytes and etag in (None, "", info.etag)


def _now(root: Store, key: str) -> ObjectInfo | None:
    try:
        return root.head(key)
    except NotFoundError:
        return None


class _OrderedListing:
    """Objects below a prefix, requested in the order of their keys."""

    def __init__(self, root: Store, prefix: str) -> None:
        self._root = root
        self._prefix = prefix
        self._pages: Iterator[list[ObjectInfo]] | None = None
        self._page: dict[str, ObjectInfo] = {}
        self._last = b""

    def find(self, key: str) -> ObjectInfo | None:
        wanted = key.encode()
        while self._pages is None or self._last < wanted:
            before = key[:-1]
            if self._pages is None or before.encode() > self._last:
                after = before if before.startswith(self._prefix) else ""
                self._pages = self._root.list(self._prefix, start_after=after)
            page = next((page for page in self._pages if page), None)
            if page is None:
                self._page, self._last = {}, b"\xff"  # after all keys
            else:
                self._page = {info.key: info for info in page}
                self._last = page[-1].key.encode()
        return self._page.get(key)
