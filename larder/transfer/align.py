"""The mirror in the order of the samples: so whoever reads a range of them reads no more of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import FatalError
from larder.manifest.match import match_rows, take_rows
from larder.manifest.sort import sort_batches
from larder.transfer.receipts import COPIED
from larder.units import format_count

__all__ = ["MIRRORED", "align_copies"]

_PART = pa.struct(
    [COPIED.field(name) for name in ("key", "size_bytes", "source_etag", "etag", "checksum")]
)

MIRRORED = pa.schema(
    [pa.field("parts", pa.list_(pa.field("part", _PART, nullable=False)), nullable=False)]
)
"""One row per sample, row by row and part by part those of the sample order: the parts' copies."""

_WANTED = pa.schema(
    [COPIED.field("key"), pa.field("position", pa.int64(), nullable=False)],
)
_FOUND = pa.schema([*_PART, _WANTED.field("position")])

_RUN_ROWS = 100_000
"""Less than other sorts take: two of them are at work at once."""


def align_copies(
    arranged: Callable[[], Iterable[pa.RecordBatch]],
    copied: Iterable[pa.RecordBatch],
    *,
    work_dir: Path,
) -> Iterator[pa.RecordBatch]:
    """Put the copies into the order of the samples that they are parts of.

    Memory: that of `larder.manifest.sort.sort_batches`.

    Args:
        arranged: Gives the column ``parts`` of `larder.manifest.schemas.SAMPLE_ORDER`, in batches;
            called twice.
        copied: Rows of `larder.transfer.receipts.COPIED`, ordered by key, each key once.
        work_dir: Directory for temporary files.

    Yields:
        Rows of `MIRRORED`.

    Raises:
        FatalError: ``run.internal``: a part was not copied.
        StoreError: ``store.full``: no space is left in ``work_dir``.
    """
    wanted = _sorted(_wanted(arranged()), _WANTED, "key", work_dir)
    found = (_found(batch, copies) for batch, copies in match_rows(wanted, copied, COPIED))
    in_order = _sorted(found, _FOUND, "position", work_dir)
    return _by_sample(arranged(), in_order)


def _sorted(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, by: str, work_dir: Path
) -> Iterator[pa.RecordBatch]:
    return sort_batches(batches, schema, [by], work_dir=work_dir, run_rows=_RUN_ROWS)


def _wanted(arranged: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in arranged:
        keys = batch.column("parts").flatten().field("key")
        positions = pa.array(range(first, first + len(keys)), pa.int64())
        first += len(keys)
        yield pa.record_batch([keys, positions], schema=_WANTED)


def _found(wanted: pa.RecordBatch, copies: pa.Table) -> pa.RecordBatch:
    rows = take_rows(wanted.column("key"), copies).select([field.name for field in _PART])
    missing = rows.column("size_bytes").null_count
    if missing:
        message = f"{format_count(missing, 'object')} of the samples were not mirrored"
        raise FatalError("run.internal", message, hint="run again")
    rows = rows.append_column(_FOUND.field("position"), wanted.column("position"))
    (batch,) = rows.combine_chunks().to_batches()
    return batch.cast(_FOUND)


def _by_sample(
    arranged: Iterable[pa.RecordBatch], parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    ahead = _FOUND.empty_table()
    for batch in arranged:
        offsets = batch.column("parts").offsets
        offsets = pc.subtract(offsets, offsets[0])
        count = offsets[-1].as_py()
        while ahead.num_rows < count:
            ahead = pa.concat_tables([ahead, pa.Table.from_batches([next(parts)])])
        own, ahead = ahead.slice(0, count), ahead.slice(count)
        columns = [own.column(field.name).combine_chunks() for field in _PART]
        structs = pa.StructArray.from_arrays(columns, fields=list(_PART))
        lists = pa.ListArray.from_arrays(offsets, structs, type=MIRRORED.field("parts").type)
        yield pa.record_batch([lists], schema=MIRRORED)
