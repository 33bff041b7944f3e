"""The receipts of copies: written while a batch is copied, found again, and merged.

The receipts of one run are left alone however many they are: their number follows from that of the
objects. When there are those of more than 16 runs, the small ones are merged into one, so that what
planning reads does not grow with the number of runs. Nothing is deleted, because another run may be
reading it: a document names what is merged. If two runs do this at the same time, the document of
the second one counts; what only the first one merged is read as before.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.copy.object import CopiedObject
from larder.disk import scratch
from larder.errors import ObjectError
from larder.jobs.batch_receipts import BatchReceipts, Items
from larder.jobs.manifests import put_named, read_ref
from larder.jobs.results import Totals
from larder.limits import map_ahead
from larder.manifest.files import ManifestFile, ManifestWriter, write_manifest
from larder.manifest.query import Stream
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import OBJECTS
from larder.manifest.sealed import seal, unseal
from larder.manifest.sort import sort
from larder.pipeline.job import CopyBatch
from larder.progress import Progress
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed
from larder.versions import layout

READERS = 4
"""Number of receipts held in memory at the same time, each of at most 50,000 objects."""


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """The prefixes of one kind of copies: ``objects`` precedes the key of each, ``failures`` the
    names of lists of what failed, and ``uploads`` the records of large objects in progress.
    """

    objects: str
    receipts: str
    failures: str
    uploads: str

    def failures_key(self, batch: str, sha256: str) -> str:
        """Key of a list of objects of a batch that could not be copied."""
        return f"{self.failures}{batch}-{sha256[:16]}.parquet"

    def finished(self, batch: str) -> str:
        return f"{self.receipts}{batch}/"

    def partial(self, batch: str | None = None) -> str:
        """Prefix of receipts left before their batch was finished; of one batch, or of all.

        It comes after those of batches in every listing: the names of batches begin with hex
        digits.
        """
        return f"{self.receipts}partial/" + (f"{batch}/" if batch else "")

    @property
    def merged(self) -> str:
        """Prefix of merged receipts: between those of batches and the partial ones."""
        return f"{self.receipts}merged/"

    @property
    def merged_key(self) -> str:
        """Key of the document that says which receipts are merged."""
        return f"{self.merged}receipts.json"


MIRROR = CopyPlace(
    layout.MIRROR_PREFIX,
    layout.COPIES_PREFIX,
    layout.FAILURES_PREFIX,
    layout.UPLOADS_PREFIX,
)
"""The mirror of a dataset, below the dataset's root."""


@dataclass(frozen=True, slots=True)
class Receipts:
    """The receipts of all copies of a dataset. Manifests of schema OBJECTS.

    ``merged`` are manifests with the rows of many receipts, and ``covered`` the digests of those;
    ``of_order`` are the others, by the sample order whose objects were copied; ``redundant`` are
    partial receipts of batches that have finished since, by sample order.
    """

    merged: tuple[ManifestRef, ...]
    of_order: Mapping[str, list[ManifestRef]]
    covered: frozenset[str]
    redundant: Mapping[str, list[ManifestRef]] = field(default_factory=dict)


def mirrored(root: Store) -> Iterator[ObjectInfo]:
    """The objects of the mirror in order, with their keys in the source."""
    prefix = layout.MIRROR_PREFIX
    for info in listed(root, prefix):
        yield replace(info, key=info.key.removeprefix(prefix))


def batch_name(sample_order: ManifestRef, batch: CopyBatch) -> str:
    return f"{sample_order.sha256[:16]}-{batch.first_row:012d}-{batch.rows}"


def read_receipts(root: Store) -> Iterator[pa.RecordBatch]:
    """The rows of all receipts of the dataset, of schema OBJECTS.

    A finished batch has a complete receipt; its partial ones are not read.
    """
    receipts = find_receipts(root)
    for ref in receipts.merged:  # may be long, so not as a whole
        yield from read_ref(root, ref, OBJECTS)

    def read(ref: ManifestRef) -> list[pa.RecordBatch]:
        return list(read_ref(root, ref, OBJECTS))

    refs = chain.from_iterable(receipts.of_order.values())
    with ThreadPoolExecutor(READERS, thread_name_prefix="receipt") as pool:
        yield from chain.from_iterable(map_ahead(pool, read, refs, window=READERS))


def find_receipts(root: Store, place: CopyPlace = MIRROR) -> Receipts:
    """Find the receipts of all copies, with one listing."""
    merged: list[ObjectInfo] = []
    receipts: list[tuple[str, ManifestRef]] = []
    redundant: dict[str, list[ManifestRef]] = defaultdict(list)
    finished: set[str] = set()
    for info in listed(root, place.receipts):
        batch = info.key.split("/")[-2]
        partial = info.key.startswith(place.partial())
        if info.key.startswith(place.merged):
            merged.append(info)
            continue
        if not partial:  # these are listed before the partial ones
            finished.add(batch)
        order = batch.partition("-")[0]
        if partial and batch in finished:
            redundant[order].append(_receipt(info))
        else:
            receipts.append((order, _receipt(info)))
    files, covered = _merged(root, place, merged)
    of_order: dict[str, list[ManifestRef]] = defaultdict(list)
    for order, ref in receipts:
        if ref.sha256 not in covered:
            of_order[order].append(ref)
    return Receipts(files, of_order, covered, redundant)


def _merged(
    root: Store, place: CopyPlace, infos: list[ObjectInfo]
) -> tuple[tuple[ManifestRef, ...], frozenset[str]]:
    """The merged receipts, and the digests of what is in them; nothing if any of them is gone."""
    sizes = {info.key: info.size_bytes for info in infos}
    key = place.merged_key
    if key not in sizes:
        return (), frozenset()
    plain = unseal(bytes(root.get(key)), object_url(root.url, key))
    files = tuple(ManifestRef(**file) for file in plain["files"])
    if any(sizes.get(file.key) != file.bytes for file in files):
        return (), frozenset()
    return files, frozenset(plain["receipts"])


def receipts_of_order(root: Store, sample_order: ManifestRef) -> list[tuple[range, ManifestRef]]:
    """The receipts of the finished batches of a sample order, with their rows of the order."""
    receipts: list[tuple[range, ManifestRef]] = []
    for info in listed(root, f"{MIRROR.receipts}{sample_order.sha256[:16]}-"):
        first_row, rows = map(int, info.key.split("/")[-2].split("-")[1:])
        receipts.append((range(first_row, first_row + rows), _receipt(info)))
    return receipts


def partial_receipts(root: Store, batch: str, place: CopyPlace = MIRROR) -> Iterator[ManifestRef]:
    """The receipts that a batch wrote before it was finished."""
    yield from map(_receipt, listed(root, place.partial(batch)))


def _receipt(info: ObjectInfo) -> ManifestRef:
    digest = info.key.rpartition("/")[2].removesuffix(".parquet")
    return ManifestRef(info.key, digest, info.size_bytes, rows=-1)


_PACKED_COPIES = 2_048
"""So many are tuples at a time: in columns they take a fifth of the memory."""

_PACKED = OBJECTS.set(
    OBJECTS.get_field_index("modified"), pa.field("modified", pa.int64(), nullable=False)
)

BATCH_OBJECTS = 50_000
"""Maximum number of objects in a batch, so that its receipt stays small even for small objects."""


class CopyReceipts(BatchReceipts[CopiedObject]):
    """Records what one batch copies; see `larder.jobs.batch_receipts.BatchReceipts`.

    ``name`` is unique within the place; ``count`` is the number of objects in the batch.
    """

    def __init__(
        self,
        root: Store,
        name: str,
        folder: Path,
        *,
        count: int,
        concurrent_batches: int = 1,
        place: CopyPlace = MIRROR,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(count, concurrent_batches=concurrent_batches, clock=clock, items=_Copies())
        self._root = root
        self._prefix = place.finished(name)
        self._partial_prefix = place.partial(name)
        self._folder = folder

    @property
    def done(self) -> Totals:
        with self._lock:
            return Totals(len(self._items), sum(row.size_bytes for row in self._items.since(0)))

    def add(self, row: CopiedObject) -> None:
        """Record an object; may be called from any thread."""
        with self._lock:
            if len(self._items) == self._noted:
                self._due.begin()
            self._items.append(row)
            self._due.add(row.size_bytes)

    def _leave(self, items: Iterable[CopiedObject], count: int, first: int | None) -> None:
        self._root.sync()  # a receipt says that its copies are durable
        prefix = self._prefix if first is None else self._partial_prefix
        with ManifestWriter(self._folder / "receipt.parquet", OBJECTS) as writer:
            writer.append(items)
        put_named(self._root, f"{prefix}{writer.file.sha256}.parquet", writer.file)


class _Copies(Items[CopiedObject]):
    """Copies in the order in which they were recorded."""

    def __init__(self) -> None:
        self._packed: list[pa.RecordBatch] = []
        self._last: list[CopiedObject] = []

    def append(self, item: CopiedObject) -> None:
        self._last.append(item)
        if len(self._last) == _PACKED_COPIES:
            columns = map(pa.array, zip(*self._last, strict=True), _PACKED.types)
            self._packed.append(pa.RecordBatch.from_arrays(list(columns), schema=_PACKED))
            self._last = []

    def __len__(self) -> int:
        return _PACKED_COPIES * len(self._packed) + len(self._last)

    def since(self, first: int) -> Iterator[CopiedObject]:
        start = first - first % _PACKED_COPIES
        for batch in self._packed[first // _PACKED_COPIES :]:
            rows = batch.slice(max(0, first - start))
            yield from map(CopiedObject, *(column.to_pylist() for column in rows.columns))
            start += _PACKED_COPIES
        yield from self._last[max(0, first - start) :]


MAX_RUNS = 16
"""Maximum number of runs, and of merged files, whose receipts are read one by one."""

SMALL = 10
"""Receipts are small if they have less than this part of the bytes of all: a tenth."""


def merge_receipts(root: Store) -> bool:
    """Merge the receipts of copies if they are those of too many runs; returns whether it did.

    Of the copies of an object, the latest is kept: the others were overwritten by it.
    """
    receipts = find_receipts(root)
    groups = [[file] for file in receipts.merged] + list(receipts.of_order.values())
    if len(groups) <= MAX_RUNS:
        return False
    total = sum(map(_bytes, groups))
    small = list(chain.from_iterable(group for group in groups if SMALL * _bytes(group) < total))
    with scratch() as folder:
        file = _merged_file(root, small, folder)
        key = f"{MIRROR.merged}{file.sha256}.parquet"
        new = put_named(root, key, file)
    files = [*(file for file in receipts.merged if file not in small), new]
    covered = receipts.covered | {ref.sha256 for ref in small if ref not in receipts.merged}
    root.put(MIRROR.merged_key, seal({"files": files, "receipts": sorted(covered)}))
    return True


def _bytes(group: Iterable[ManifestRef]) -> int:
    return sum(ref.bytes for ref in group)


def _merged_file(root: Store, refs: Iterable[ManifestRef], folder: Path) -> ManifestFile:
    rows = Stream(OBJECTS, chain.from_iterable(read_ref(root, ref, OBJECTS) for ref in refs))
    ties = ("-modified", "etag", "mirror_etag", "-checksum")
    with closing(sort(rows, ("key",), ties=ties, work_dir=folder)) as batches:
        return write_manifest(folder / "merged.parquet", OBJECTS, _firsts(batches))


def _firsts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first row of each key."""
    last: str | None = None
    for batch in batches:
        keys = batch.column("key")
        first = np.ones(len(keys), np.bool_)
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        first[0] = keys[0].as_py() != last
        last = keys[-1].as_py()
        yield batch.filter(pa.array(first))


_Pair = tuple[str, str, str]
"""Key of an object, its etag in the source, and that of its copy."""


def copied_before(
    root: Store,
    batch: str,
    objects: Callable[[], Iterable[ObjectInfo]],
    concurrency: int,
    progress: Progress,
    place: CopyPlace = MIRROR,
) -> list[CopiedObject]:
    """The copies in receipts of this batch that still match them.

    ``progress`` may stop this; nothing is reported, because the earlier attempt did that.
    """
    copies: dict[_Pair, CopiedObject] = {}
    for ref in partial_receipts(root, batch, place):
        for rows in read_ref(root, ref, OBJECTS):
            modified = rows.column("modified").cast(pa.int64())
            rows = rows.set_column(OBJECTS.get_field_index("modified"), "modified", modified)
            for copy in map(CopiedObject, *(column.to_pylist() for column in rows.columns)):
                copies[copy.key, copy.etag, copy.mirror_etag] = copy
    keys = {key for key, _, _ in copies}
    if not keys:
        return []

    def find(info: ObjectInfo) -> CopiedObject | None:
        try:
            written = root.head(place.objects + info.key)
        except ObjectError:
            return None
        copy = copies.get((info.key, info.etag, written.etag))
        return copy if copy and written.size_bytes == info.size_bytes else None

    copied: list[CopiedObject] = []
    with ThreadPoolExecutor(concurrency, thread_name_prefix="check") as pool:
        wanted = (info for info in objects() if info.key in keys)
        for row in map_ahead(pool, find, wanted, window=4 * concurrency):
            progress.advance("mirror")
            copied += [row] if row else []
    return copied
