"""The manifest of the samples that were planned and left out as bad."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np
import pyarrow as pa

from larder.manifest.schemas import SKIPPED
from larder.samples.columns import column_texts

UNKNOWN = "it was left out as bad, for a reason that was not recorded"
"""The message for a sample that the receipts only count."""

_PARTS = SKIPPED.field("parts").type


def skipped_rows(
    order: Iterable[pa.RecordBatch],
    kept: Iterable[pa.RecordBatch],
    messages: Mapping[str, str],
    check: str,
) -> Iterator[pa.RecordBatch]:
    """The planned samples that are in no shard, in one pass over both.

    ``order`` are rows of SAMPLE_ORDER, and ``kept`` of SAMPLES, in the same order; of both,
    ``split`` and ``key`` are needed, and ``parts`` of the former. ``messages`` is what is known of
    samples that were left out, by the key of an object or sample. Yields rows of SKIPPED.
    """
    following = chain(_keys(kept), [None])
    found = next(following)
    for batch in order:
        left_out = np.zeros(len(batch), np.bool_)
        for number, key in enumerate(_keys([batch])):
            if key == found:
                found = next(following)
            else:
                left_out[number] = key[0] != ""  # not an object of no sample
        if left_out.any():
            yield _rows(batch.filter(pa.array(left_out)), messages, check)
    assert found is None, "every sample was planned"


def _keys(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str]]:
    for batch in batches:
        columns = (column_texts(batch.column(name)) for name in ("split", "key"))
        yield from zip(*columns, strict=True)


def _rows(batch: pa.RecordBatch, messages: Mapping[str, str], check: str) -> pa.RecordBatch:
    lists = batch.column("parts")
    entries = lists.flatten()
    fields = list(_PARTS.value_type)
    parts = pa.StructArray.from_arrays([entries.field(f.name) for f in fields], fields=fields)
    offsets = lists.offsets.to_numpy()
    owners = (
        [key, *(part["key"] for part in own)]
        for key, own in zip(column_texts(batch.column("key")), lists.to_pylist(), strict=True)
    )
    told = [next((messages[key] for key in keys if key in messages), UNKNOWN) for keys in owners]
    return pa.RecordBatch.from_arrays(
        [
            batch.column("split"),
            batch.column("key"),
            pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), parts, type=_PARTS),
            pa.repeat(pa.scalar(check, pa.string()), len(batch)),
            pa.array(told, pa.string()),
        ],
        schema=SKIPPED,
    )
