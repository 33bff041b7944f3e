"""Receipts of shards: documents that list finished shards and their samples.

A receipt is written after the shards and rows that it names. A batch writes partial receipts while
it is in progress, and one for all its shards at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from larder.disk import scratch
from larder.errors import Failure
from larder.jobs.batch_receipts import BatchReceipts
from larder.jobs.manifests import put_named
from larder.jobs.results import Totals
from larder.manifest.files import ManifestWriter
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import SAMPLES
from larder.manifest.sealed import seal, unseal
from larder.manifest.spool import Spool
from larder.shards.images.check import FormNote
from larder.shards.index_rows import sample_rows
from larder.shards.indexes import IndexFile
from larder.shards.model import ShardFile, ShardResult
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import listed
from larder.versions import layout


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard; it has no ``files`` if all of its samples were left out.

    ``omitted`` are the first samples that were left out, ``omitted_count`` is their number;
    ``forms`` says what its images decode to, if that was asked for; ``indexes`` are its index files
    for other readers.
    """

    split: str
    name: str
    files: tuple[ShardFile, ...]
    samples: int
    omitted: tuple[Failure, ...]
    omitted_count: int
    forms: tuple[FormNote, ...] = ()
    indexes: tuple[IndexFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Shards that were finished together, in that order.

    ``rows`` is a manifest of schema SAMPLES: the samples of all these shards in order, with ids
    that count within their shards.
    """

    key: str
    shards: tuple[Shard, ...]
    rows: ManifestRef


def read_receipts(root: Store, segment: str) -> Iterator[Receipt]:
    """The receipts of a segment's shards: of finished batches first, then partial ones.

    Receipts whose rows do not exist, or which were written by an incompatible version of Larder,
    are left out. Receipts are listed and read only as they are requested.
    """
    partial = layout.partial_shards_prefix(segment)
    finished: set[str] = set()

    def wanted(key: str) -> bool:
        return not (key.startswith(partial) and _stem(key).rsplit("-", 2)[0] in finished)

    for receipt in _read(root, layout.shards_work_prefix(segment), wanted):
        if not receipt.key.startswith(partial):  # these are listed before the partial ones
            finished.add(_stem(receipt.key))
        yield receipt


def partial_receipts(root: Store, segment: str, batch: str) -> Iterator[Receipt]:
    """The receipts that a batch wrote before it was finished; otherwise like `read_receipts`."""
    yield from _read(root, layout.partial_shards_prefix(segment, batch), lambda _: True)


def _stem(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".json")


def _read(root: Store, prefix: str, wanted: Callable[[str], bool]) -> Iterator[Receipt]:
    sizes: dict[str, int] = {}
    for info in listed(root, prefix):
        if not info.key.endswith(".json"):
            sizes[info.key] = info.size_bytes  # rows, NAME-SHA.parquet, come before NAME.json
        elif wanted(info.key):
            plain = unseal(bytes(root.get(info.key)), object_url(root.url, info.key))
            receipt = _receipt(info.key, plain)
            if receipt is not None and sizes.get(receipt.rows.key) == receipt.rows.bytes:
                yield receipt


def _receipt(key: str, plain: dict[str, Any]) -> Receipt | None:
    try:
        shards = tuple(map(plain_shard, plain["shards"]))
        return Receipt(key, shards, ManifestRef(**plain["rows"]))
    except (KeyError, TypeError):
        return None


def plain_shard(plain: dict[str, Any]) -> Shard:
    """A shard of the JSON of a receipt; KeyError or TypeError: a field is missing or unknown."""
    return _shard(**plain)


def _shard(
    *,
    files: Iterable[dict[str, Any]],
    omitted: Iterable[dict[str, Any]],
    forms: Iterable[dict[str, Any]] = (),
    indexes: Iterable[dict[str, Any]] = (),
    **fields: Any,
) -> Shard:
    return Shard(
        files=tuple(ShardFile(**file) for file in files),
        omitted=tuple(Failure(**failure) for failure in omitted),
        forms=tuple(FormNote(**note) for note in forms),
        indexes=tuple(IndexFile(**file) for file in indexes),
        **fields,
    )


def put_receipt(root: Store, receipt: Receipt) -> None:
    root.put(receipt.key, seal({"shards": receipt.shards, "rows": receipt.rows}))


_GROUP_ROWS = 8_192
"""Rows of a receipt that are compressed together, which are what writing it holds."""


class ShardReceipts(BatchReceipts[tuple[Shard, range]]):
    """Records the shards that one batch writes; see `larder.jobs.batch_receipts.BatchReceipts`.

    The rows of their samples are in a temporary file. ``name`` is unique within the segment;
    ``count`` is the number of shards in the batch; ``written`` is false in a repair, whose shards
    have their manifests: no receipts are written.
    """

    def __init__(
        self,
        root: Store,
        segment: str,
        name: str,
        *,
        count: int,
        concurrent_batches: int = 1,
        written: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(count, concurrent_batches=concurrent_batches, clock=clock)
        self._root = root
        self._segment = segment
        self._name = f"{layout.shards_work_prefix(segment)}{name}"
        self._partial_prefix = layout.partial_shards_prefix(segment, name)
        self._rows = Spool(SAMPLES)
        self._written = written

    @property
    def recorded(self) -> frozenset[tuple[str, str]]:
        """Split and name of every shard so far."""
        return frozenset((shard.split, shard.name) for shard, _ in self._items.since(0))

    @property
    def done(self) -> Totals:
        """The finished shards, without those whose samples were all left out."""
        sizes = [shard.bytes for shard, _ in self._items.since(0) if shard.bytes]
        return Totals(len(sizes), sum(sizes))

    def adopt(self, shards: Iterable[tuple[Shard, Iterable[pa.RecordBatch]]]) -> None:
        """Adopt shards with their rows, as `carry` does."""
        self.carry([(shard, self._kept(rows)) for shard, rows in shards])

    def add(self, result: ShardResult, indexes: Sequence[IndexFile] = ()) -> None:
        """Record a shard that did not fail, and its index files for other readers."""
        rows = self._kept(sample_rows(result, self._segment))
        self._items.append((_finished(result, indexes), rows))
        self._due.add(result.bytes)
        self.leave_if_due()

    def _kept(self, batches: Iterable[pa.RecordBatch]) -> range:
        first_row = self._rows.num_rows
        for batch in batches:
            self._rows.append(batch)
        return range(first_row, self._rows.num_rows)

    def _leave(self, items: Iterable[tuple[Shard, range]], count: int, first: int | None) -> None:
        if not self._written:
            return
        items = list(items)
        place = f"{self._partial_prefix}{first:06d}-{count}" if first is not None else self._name
        with scratch() as folder:
            path = folder / "rows.parquet"
            with ManifestWriter(path, SAMPLES, row_group_rows=_GROUP_ROWS) as writer:
                for _, rows in items:
                    for batch in self._rows.read(rows.start, len(rows)):
                        writer.append_batch(batch)
            # Another run may write the same receipt now, with other bytes for the rows.
            name = f"{place}-{writer.file.sha256[:16]}.parquet"
            written = put_named(self._root, name, writer.file)
        shards = tuple(shard for shard, _ in items)
        put_receipt(self._root, Receipt(f"{place}.json", shards, written))


def _finished(result: ShardResult, indexes: Sequence[IndexFile]) -> Shard:
    return Shard(
        split=result.split,
        name=result.name,
        files=result.files,
        samples=result.samples.num_rows,
        omitted=result.omitted,
        omitted_count=result.omitted_count,
        forms=result.forms,
        indexes=tuple(indexes),
    )
