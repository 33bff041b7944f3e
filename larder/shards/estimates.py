"""What images are expected to take once they are transformed: shards are planned with that.

An estimate depends on the size of the object and the options alone, so that shards have the same
borders wherever and whenever they are planned, and after a compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from larder.config.shape import Transform
from larder.samples.images import role
from larder.shards.sizes import Sizes

_JPEG_MILLIBITS: Final = ((1, 250), (30, 800), (50, 1_100), (75, 1_700), (85, 2_200), (90, 2_800))
_BEST_MILLIBITS: Final = ((95, 4_200), (100, 8_000))
"""Thousandths of a bit that a pixel of a small photograph takes, by quality."""

_PNG_MILLIBITS: Final = 14_000
_MASK_MILLIBITS: Final = 500


def with_estimates(batch: pa.RecordBatch, transform: Transform | None) -> pa.RecordBatch:
    """Rows of `larder.manifest.schemas.SAMPLE_ORDER`, with estimates as the sizes of images."""
    if transform is None:
        return batch
    lists = batch.column("parts")
    parts = lists.flatten()
    encoded = parts.field("ext").dictionary_encode()
    exts: Sequence[str] = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy()
    sizes = parts.field("size_bytes").to_numpy()
    found = sizes.copy()
    for code, ext in enumerate(exts):
        if role(ext).image:
            here = codes == code
            found[here] = expected_bytes(ext, sizes[here], transform)
    fields = list(lists.type.value_type)
    columns = [pa.array(found) if f.name == "size_bytes" else parts.field(f.name) for f in fields]
    offsets = lists.offsets.to_numpy()
    replaced = pa.ListArray.from_arrays(
        pa.array(offsets - offsets[0], pa.int32()),
        pa.StructArray.from_arrays(columns, fields=fields),
        type=lists.type,
    )
    place = batch.schema.get_field_index("parts")
    return batch.set_column(place, batch.schema.field(place), replaced)


def expected_bytes(ext: str, sizes: Sizes, transform: Transform) -> Sizes:
    """The bytes that images are expected to take.

    Those of a photograph of 4 x 3 with the shorter side that is asked for, but no more than the
    object has unless images become larger; as many as the object has if the size is kept.
    """
    if transform.resize is None:
        return sizes
    mask = role(ext).name in transform.masks
    millibits = _MASK_MILLIBITS if mask else _millibits(ext, transform)
    pixels = transform.resize * transform.resize * 4 // 3
    resized = pixels * millibits // 8_000 + 600
    found: Sizes = np.full(len(sizes), resized, np.int64)
    return found if transform.enlarge else np.minimum(sizes, found)


def _millibits(ext: str, transform: Transform) -> int:
    kept_png = transform.format == "keep" and ext.rpartition(".")[2] == "png"
    if transform.format == "png" or kept_png:
        return _PNG_MILLIBITS
    points = (*_JPEG_MILLIBITS, *_BEST_MILLIBITS)
    for (low, below), (high, above) in pairwise(points):
        if transform.quality <= high:
            return below + (above - below) * (transform.quality - low) // (high - low)
    raise AssertionError("a quality is at most 100")
