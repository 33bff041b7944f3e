"""Receipts of copies: which objects were copied and verified, in the order in which they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from larder.store.base import ObjectInfo
from larder.transfer.copy import Copied
from larder.transfer.difference import KnownCopy

__all__ = ["COPIED", "copied_batch", "known_copies", "object_rows"]

COPIED = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("source_etag", pa.string(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("checksum", pa.string()),
        pa.field("check", pa.string()),
    ]
)
"""One row per object at the storage: ``etag`` and ``modified`` are those of the copy."""


def copied_batch(rows: Sequence[Copied]) -> pa.RecordBatch:
    """Rows of schema COPIED."""
    return pa.record_batch(
        [
            pa.array([row.source.key for row in rows], pa.string()),
            pa.array([row.source.size_bytes for row in rows], pa.int64()),
            pa.array([row.source.etag for row in rows], pa.string()),
            pa.array([row.info.etag for row in rows], pa.string()),
            pa.array([row.info.modified_us for row in rows], pa.timestamp("us", tz="UTC")),
            pa.array([row.checksum for row in rows], pa.string()),
            pa.array([row.check for row in rows], pa.string()),
        ],
        schema=COPIED,
    )


def known_copies(batches: Iterable[pa.RecordBatch]) -> Iterator[KnownCopy]:
    """The copies that rows of schema COPIED vouch for."""
    for batch in batches:
        columns = [
            batch.column(name).to_pylist() for name in ("key", "source_etag", "etag", "checksum")
        ]
        yield from map(KnownCopy, *columns)


def object_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[ObjectInfo]:
    """The objects that rows of schema OBJECTS describe."""
    for batch in batches:
        keys = batch.column("key").to_pylist()
        sizes = batch.column("size_bytes").to_pylist()
        etags = batch.column("etag").to_pylist()
        modified = batch.column("modified").cast(pa.int64()).to_pylist()
        yield from map(ObjectInfo, keys, sizes, etags, modified)
