"""Sorted parts become samples: neighbours with the same sample key are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import ConfigError
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.parts import BadKeys

__all__ = ["GROUPED", "group_parts"]

_PARTS = SAMPLE_ORDER.field("parts").type

GROUPED = pa.schema(
    [
        pa.field("split", pa.int16(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("parts", _PARTS, nullable=False),
    ]
)
"""One row per sample, ordered by key; ``parts`` as in SAMPLE_ORDER."""

_Flags = npt.NDArray[np.bool_]


def group_parts(
    parts: Iterable[pa.RecordBatch], split_names: Sequence[str], bad_keys: BadKeys
) -> Iterator[pa.RecordBatch]:
    """Group the parts of each sample.

    Of several parts of a sample with the same extension the first by key stays; the others are
    bad keys. The parts of one sample must fit into memory.

    Args:
        parts: Rows of `larder.samples.parts.PARTS`, ordered by sample, extension and key.
        split_names: The splits in order, for messages.
        bad_keys: Where to note parts that have to go.

    Yields:
        Rows of `GROUPED`.

    Raises:
        ConfigError: ``config.unmatched_split``: a sample whose parts fall into two splits.
    """
    for whole in _whole_samples(parts):
        rows = _without_duplicates(whole, bad_keys)
        same = _same_as_before(rows.column("sample"))
        _check_splits(rows, same, split_names)
        yield _grouped(rows, np.flatnonzero(~same))


def _whole_samples(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut only between samples."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        starts = np.flatnonzero(~_same_as_before(batch.column("sample")))
        last = int(starts[-1])
        if held and last == 0 and held[-1].column("sample")[-1] == batch.column("sample")[0]:
            held.append(batch)  # one sample goes on and on
            continue
        yield from _joined([*held, batch.slice(0, last)])
        held = [batch.slice(last)]
    yield from _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if sum(batch.num_rows for batch in batches):
        yield pa.concat_batches(batches)


def _same_as_before(column: pa.Array) -> _Flags:
    """Whether each value equals the one before it; the first one does not."""
    same = np.zeros(len(column), np.bool_)
    same[1:] = pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return same


def _without_duplicates(rows: pa.RecordBatch, bad_keys: BadKeys) -> pa.RecordBatch:
    duplicate = _same_as_before(rows.column("sample")) & _same_as_before(rows.column("ext"))
    found = np.flatnonzero(duplicate)
    if not len(found):
        return rows
    bad = rows.take(pa.array(found))
    for key, ext in zip(bad.column("key").to_pylist(), bad.column("ext").to_pylist(), strict=True):
        bad_keys.add(key, f"the sample has another part {ext}, once extensions are normalised")
    return rows.filter(pa.array(~duplicate))


def _check_splits(rows: pa.RecordBatch, same: _Flags, split_names: Sequence[str]) -> None:
    splits = rows.column("split").to_numpy()
    crossing = np.flatnonzero(same[1:] & (splits[1:] != splits[:-1]))
    if len(crossing):
        at = int(crossing[0])
        one, two = rows.slice(at, 2).select(["key", "split"]).to_pylist()
        raise ConfigError(
            "config.unmatched_split",
            f"{one['key']} falls into split {split_names[one['split']]!r} and "
            f"{two['key']} into {split_names[two['split']]!r}, but they are one sample",
            where=rows.column("sample")[at].as_py(),
            hint="let the globs of a split take all parts of a sample",
        )


def _grouped(rows: pa.RecordBatch, starts: npt.NDArray[np.intp]) -> pa.RecordBatch:
    fields = _PARTS.value_type.fields
    parts = pa.StructArray.from_arrays([rows.column(field.name) for field in fields], fields=fields)
    offsets = pa.array(np.append(starts, rows.num_rows), pa.int32())
    firsts = rows.take(pa.array(starts))
    lists = pa.ListArray.from_arrays(offsets, parts, type=_PARTS)
    return pa.RecordBatch.from_arrays(
        [firsts.column("split"), firsts.column("sample"), lists], schema=GROUPED
    )
