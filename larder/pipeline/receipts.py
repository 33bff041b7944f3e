"""Receipts of shards: documents that say which shards stand, and with which samples.

A receipt is written after the shards and the rows that it names. A batch leaves partial ones while
it is under way, and one of all its shards at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from larder.errors import Failure, LarderError
from larder.manifest.files import ManifestWriter
from larder.pipeline.due import Due
from larder.pipeline.job import Ref, listed, put_named, scratch
from larder.pipeline.results import SHOWN_FAILURES
from larder.shards.model import ROWS, ShardResult
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import seal, unseal

__all__ = ["Receipt", "Shard", "ShardReceipts", "put_receipt", "read_receipts"]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that stands: ``bytes`` is 0 for one that no sample was left for.

    ``omitted`` are the first samples that were left out of it, ``omitted_count`` is all of them.
    ``etag`` is that of the object with these bytes; empty if it is not known.
    """

    split: str
    name: str
    bytes: int
    samples: int
    sha256: str
    omitted: tuple[Failure, ...]
    omitted_count: int
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Shards that were finished together.

    Attributes:
        key: Where it stands.
        shards: In the order of the plan.
        rows: Manifest of schema ROWS: the samples of all of them, one after the other.
    """

    key: str
    shards: tuple[Shard, ...]
    rows: Ref


def read_receipts(root: Store, segment: str) -> Iterator[Receipt]:
    """The receipts of a segment's shards: those of finished batches first.

    One whose rows are gone is left out, and one that another Larder wrote in another way.
    """
    infos = listed(root, layout.shards_work_prefix(segment))
    sizes = {info.key: info.size_bytes for info in infos}
    partial = layout.partial_shards_prefix(segment)
    for key in sorted(sizes, key=lambda key: key.startswith(partial)):
        if key.endswith(".json"):
            receipt = _receipt(key, unseal(bytes(root.get(key)), object_url(root.url, key)))
            if receipt is not None and sizes.get(receipt.rows.key) == receipt.rows.bytes:
                yield receipt


def _receipt(key: str, plain: dict[str, Any]) -> Receipt | None:
    try:
        shards = tuple(_shard(**shard) for shard in plain["shards"])
        return Receipt(key, shards, Ref(**plain["rows"]))
    except (KeyError, TypeError):
        return None


def _shard(*, omitted: Iterable[dict[str, str]], **fields: Any) -> Shard:
    return Shard(omitted=tuple(Failure(**failure) for failure in omitted), **fields)


def put_receipt(root: Store, receipt: Receipt) -> None:
    """Write a receipt, in place of the one that stands there."""
    root.put(receipt.key, seal({"shards": receipt.shards, "rows": receipt.rows}))


class ShardReceipts:
    """Notes the shards that one batch writes.

    As a context manager it leaves a receipt of the whole batch when the block ends. Until then it
    leaves partial ones as they fall due, and one of the rest if the block raises or a shard failed.

    Args:
        root: The dataset's root.
        segment: ID of the segment that is being built.
        name: Of the receipt of the whole batch; no other batch of the segment has it.
        beside: Batches that run at once.
        clock: Seconds from any fixed moment; for tests.
    """

    def __init__(
        self,
        root: Store,
        segment: str,
        name: str,
        *,
        beside: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._prefix = layout.shards_work_prefix(segment)
        self._partial_prefix = layout.partial_shards_prefix(segment)
        self._name = name
        self._due = Due(beside, clock)
        self._noted = 0
        self._finished: list[ShardResult] = []
        self.results: list[ShardResult] = []
        """What came of each shard, in the order of the plan."""

    def add(self, result: ShardResult) -> None:
        """Note what came of a shard."""
        self.results.append(result)
        if not result.failures:
            self._finished.append(result)
            self._due.add(result.bytes)
            if self._due.now:
                self._leave_partial()

    def _leave_partial(self) -> None:
        results, first = self._finished[self._noted :], self._noted
        self._due.begin()
        if results:
            place = f"{first}-{len(results)}"
            self._leave(f"{self._partial_prefix}{self._name}-{place}", results)
        self._noted += len(results)

    def _leave(self, name: str, results: Sequence[ShardResult]) -> None:
        with scratch() as folder:
            with ManifestWriter(folder / "rows.parquet", ROWS) as writer:
                for result in results:
                    writer.append_batch(result.samples)
            # Another run may leave the same receipt now, with rows of other bytes.
            rows = put_named(self._root, f"{name}-{writer.file.sha256[:16]}.parquet", writer.file)
        shards = tuple(map(_finished, results))
        put_receipt(self._root, Receipt(f"{name}.json", shards, rows))

    def __enter__(self) -> ShardReceipts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            with suppress(LarderError):  # the first error is the one to see
                self._leave_partial()
        elif len(self._finished) < len(self.results):
            self._leave_partial()
        else:
            self._leave(f"{self._prefix}{self._name}", self._finished)


def _finished(result: ShardResult) -> Shard:
    return Shard(
        split=result.split,
        name=result.name,
        bytes=result.bytes,
        samples=result.samples.num_rows,
        sha256=result.sha256,
        omitted=result.omitted[:SHOWN_FAILURES],
        omitted_count=len(result.omitted),
        etag=result.etag,
    )
