"""The bytes that each sample of a sample order takes in a shard, one record batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.samples.grouping import LABEL_EXT

Sizes = npt.NDArray[np.int64]
"""Bytes, one number per row."""


def split_sizes(
    batches: Iterable[pa.RecordBatch], sample_sizes: Callable[[pa.RecordBatch], Sizes]
) -> Iterator[tuple[str, list[int]]]:
    """The sizes for `larder.shards.packing.plan_shards`, from record batches in order."""
    for batch in batches:
        sizes = sample_sizes(batch).tolist()
        runs = pc.run_end_encode(batch.column("split"))
        start = 0
        for split, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield split, sizes[start:stop]
            start = stop


def content_sizes(batch: pa.RecordBatch) -> Sizes:
    """Bytes of each sample's parts and label: an estimate for formats that cannot know sizes.

    A sample without content counts as one byte, so that shards of such samples have an end.
    """
    return np.maximum(sum_members(batch, lambda keys, exts, sizes: sizes), 1)


def sum_members(
    batch: pa.RecordBatch, member_sizes: Callable[[pa.Array, pa.Array, Sizes], Sizes]
) -> Sizes:
    """Bytes that each sample takes: the sum over its parts, including its label as part ``cls``.

    ``member_sizes`` gets the samples' keys, the extensions and the lengths of the contents.
    """
    parts = batch.column("parts")
    counts = pc.list_value_length(parts).to_numpy()
    entries = parts.flatten()
    exts, sizes = entries.field("ext"), entries.field("size_bytes")
    keys = batch.column("key").take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    ends = np.concatenate(([0], np.cumsum(member_sizes(keys, exts, sizes.to_numpy()))))
    last = np.cumsum(counts)
    total: Sizes = ends[last] - ends[last - counts]
    labels = batch.column("label")
    rows = np.flatnonzero(labels.is_valid().to_numpy(zero_copy_only=False))
    if len(rows):
        keys, exts = batch.column("key").take(pa.array(rows)), pa.repeat(LABEL_EXT, len(rows))
        total[rows] += member_sizes(keys, exts, _label_sizes(labels.drop_null()))
    return total


def _label_sizes(labels: pa.Array) -> Sizes:
    texts = pc.cast(labels, pa.string())
    sizes: Sizes = pc.binary_length(texts).to_numpy().astype(np.int64)
    return sizes
