"""How many bytes each sample of a sample order takes in a tar shard, a record batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.shards import tar
from larder.shards.model import LABEL_EXT, label_bytes

__all__ = ["sample_sizes", "split_sizes"]

_Sizes = npt.NDArray[np.int64]


def split_sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, list[int]]]:
    """The sizes that `larder.shards.packing.plan_shards` takes, from a sample order.

    Args:
        batches: Record batches of `larder.manifest.schemas.SAMPLE_ORDER`, in order.

    Yields:
        A split and the bytes that its next samples take in a shard.
    """
    for batch in batches:
        sizes = sample_sizes(batch).tolist()
        runs = pc.run_end_encode(batch.column("split"))
        start = 0
        for split, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield split, sizes[start:stop]
            start = stop


def sample_sizes(batch: pa.RecordBatch) -> _Sizes:
    """Bytes that each sample takes: its members' headers, data and padding, its label's too.

    Args:
        batch: Rows of `larder.manifest.schemas.SAMPLE_ORDER`.

    Returns:
        One number per row, exactly what `larder.shards.build` writes.

    Raises:
        ObjectError: ``object.bad_key``: a name that no tar archive can represent.
    """
    parts = batch.column("parts")
    counts = pc.list_value_length(parts).to_numpy()
    exts, sizes = (parts.flatten().field(name) for name in ("ext", "size_bytes"))
    keys = batch.column("key").take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    of_parts = _member_sizes(keys, exts, sizes.to_numpy())
    ends = np.concatenate(([0], np.cumsum(of_parts)))
    last = np.cumsum(counts)
    total: _Sizes = _label_sizes(batch) + ends[last] - ends[last - counts]
    return total


def _label_sizes(batch: pa.RecordBatch) -> _Sizes:
    labels = batch.column("label")
    rows = np.flatnonzero(labels.is_valid().to_numpy(zero_copy_only=False))
    present = labels.drop_null().to_pylist()
    sizes = np.zeros(len(batch), np.int64)
    if present:
        lengths = np.array([len(label_bytes(label)) for label in present], np.int64)
        exts = pa.repeat(LABEL_EXT, len(present))
        sizes[rows] = _member_sizes(batch.column("key").take(pa.array(rows)), exts, lengths)
    return sizes


def _member_sizes(keys: pa.Array, exts: pa.Array, sizes: _Sizes) -> _Sizes:
    """`larder.shards.tar.member_size` of many members; ``sizes`` are those of their data."""
    names = pc.binary_join_element_wise(keys, exts, ".")
    plain = pc.and_(
        pc.and_(pc.string_is_ascii(names), pc.less_equal(pc.binary_length(names), tar.NAME_BYTES)),
        pc.invert(pc.or_(pc.match_substring(names, "\0"), pc.ends_with(names, "/"))),
    ).to_numpy(zero_copy_only=False)
    members = tar.BLOCK_BYTES + sizes + -sizes % tar.BLOCK_BYTES
    for row in np.flatnonzero(~(plain & (sizes < tar.OCTAL_LIMIT))).tolist():
        members[row] = tar.member_size(names[row].as_py(), int(sizes[row]))
    return members
