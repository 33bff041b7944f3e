"""Sizes of samples in shards, and the common parts of a segment's samples.

All functions work on the columns of a sample order, one record batch at a time. The size of an
image to transform is estimated from the object's size and the options alone. So shards have the
same borders in every plan, and after a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import Layout, Transform
from larder.errors import ConfigError
from larder.manifest.schemas import lists_of
from larder.samples.image_parts import role
from larder.units import format_count

Sizes = npt.NDArray[np.int64]
"""Bytes, one number per row."""


def split_sizes(
    batches: Iterable[pa.RecordBatch], sample_sizes: Callable[[pa.RecordBatch], Sizes]
) -> Iterator[tuple[str, Sizes]]:
    """Yield the sizes for `larder.shards.packing.running_totals`, from record batches in order."""
    for batch in batches:
        sizes = sample_sizes(batch)
        runs = pc.run_end_encode(batch.column("split"))
        start = 0
        for split, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield split, sizes[start:stop]
            start = stop


def sum_parts(parts: pa.Array, sizes: Sizes) -> Sizes:
    """Return the sum over the parts of each sample; ``sizes`` has one number per part."""
    counts = pc.list_value_length(parts).to_numpy()
    ends = np.concatenate(([0], np.cumsum(sizes)))
    last = np.cumsum(counts)
    totals: Sizes = ends[last] - ends[last - counts]
    return totals


_JPEG_MILLIBITS = {1: 250, 30: 800, 50: 1100, 75: 1700, 85: 2200, 90: 2800, 95: 4200, 100: 8000}
"""Thousandths of a bit per pixel of a small photograph, by quality."""

_PNG_MILLIBITS: Final = 14_000
_MASK_MILLIBITS: Final = 500


def with_estimates(batch: pa.RecordBatch, transform: Transform | None) -> pa.RecordBatch:
    if transform is None:
        return batch
    lists = batch.column("parts")
    parts = lists.flatten()
    encoded = parts.field("ext").dictionary_encode()
    exts: Sequence[str] = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy()
    sizes = parts.field("size_bytes").to_numpy()
    estimates = sizes.copy()
    for code, ext in enumerate(exts):
        if role(ext).image:
            flags = codes == code
            estimates[flags] = expected_bytes(ext, sizes[flags], transform)

    def column(name: str) -> pa.Array:
        return pa.array(estimates) if name == "size_bytes" else parts.field(name)

    offsets = lists.offsets.to_numpy()
    replaced = lists_of(lists.type, column, offsets - offsets[0])
    place = batch.schema.get_field_index("parts")
    return batch.set_column(place, batch.schema.field(place), replaced)


def expected_bytes(ext: str, sizes: Sizes, transform: Transform) -> Sizes:
    """Return the expected bytes of transformed images: a 4 x 3 photograph with the requested side.

    Unless images are enlarged, the estimate is at most the object's size.
    """
    if transform.resize is None:
        return sizes
    mask = role(ext).name in transform.masks
    millibits = _MASK_MILLIBITS if mask else _millibits(ext, transform)
    pixels = transform.resize * transform.resize * 4 // 3
    resized = pixels * millibits // 8_000 + 600
    estimates: Sizes = np.full(len(sizes), resized, np.int64)
    return estimates if transform.enlarge else np.minimum(sizes, estimates)


def _millibits(ext: str, transform: Transform) -> int:
    kept_png = transform.format == "keep" and ext.rpartition(".")[2] == "png"
    if transform.format == "png" or kept_png:
        return _PNG_MILLIBITS
    for (low, below), (high, above) in pairwise(_JPEG_MILLIBITS.items()):
        if transform.quality <= high:
            return below + (above - below) * (transform.quality - low) // (high - low)
    raise AssertionError("a quality is at most 100")


def survey_parts(batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
    """Return the extensions of parts, and whether labels exist; ``before`` is kept."""
    exts = set(before.parts) if before else set()
    labelled = before.labelled if before else False
    for batch in batches:
        exts.update(pc.unique(batch.column("parts").flatten().field("ext")).to_pylist())
        labelled |= batch.column("label").null_count < len(batch)
    return Layout(dict.fromkeys(sorted(exts)), labelled)


def survey_sizes(batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
    """Return the parts of every sample, with their lengths; ``before`` must hold too."""
    layout = before
    for batch in batches:
        if layout is None and len(batch):
            parts = batch.column("parts")[0].as_py()  # sorted by extension
            sizes = {part["ext"]: part["size_bytes"] for part in parts}
            layout = Layout(sizes, batch.column("label")[0].is_valid)
        if layout is not None:
            _compare(batch, layout)
    return layout or Layout({}, False)


def _compare(batch: pa.RecordBatch, layout: Layout) -> None:
    """Refuse a batch whose samples differ from the layout. Parts are sorted by extension."""
    lists = batch.column("parts")
    parts = lists.flatten()
    counts = pc.list_value_length(lists).to_numpy()
    rows = np.flatnonzero(counts != len(layout.parts))
    if not len(rows):
        wanted = pa.array(list(layout.parts) * len(batch), pa.string())
        sizes = np.tile(np.array(list(layout.parts.values()), np.int64), len(batch))
        same = pc.equal(parts.field("ext"), wanted).to_numpy(zero_copy_only=False)
        same &= parts.field("size_bytes").to_numpy() == sizes
        rows = np.flatnonzero(~same) // max(1, len(layout.parts))
    if len(rows):
        parts = lists[int(rows[0])].as_py()
        lengths = {part["ext"]: part["size_bytes"] for part in parts}
        message = f"the sample has {_listed(lengths)}, others have {_listed(layout.parts)}"
        raise _refusal(parts[0]["key"], message)
    unlike = batch.column("label").is_valid().to_numpy(zero_copy_only=False) != layout.labelled
    if unlike.any():
        part = lists[int(np.flatnonzero(unlike)[0])].as_py()[0]
        has = "no label, others have one" if layout.labelled else "a label, others have none"
        raise _refusal(part["key"], f"the sample has {has}")


def _listed(sizes: Mapping[str, int | None]) -> str:
    parts = (f"{ext} of {format_count(size or 0, 'byte')}" for ext, size in sizes.items())
    return ", ".join(parts) or "no parts"


def _refusal(where: str, message: str) -> ConfigError:
    return ConfigError(
        "config.invalid_value",
        message,
        where=where,
        hint="all samples have equal parts in this shards.format: exclude it, or choose another",
    )


def refuse_names(layout: Layout, names: Collection[str], what: str) -> None:
    """Raise ``config.invalid_value`` if a part has one of these names, which ``what`` uses."""
    if clash := min(layout.parts.keys() & set(names), default=None):
        message = f"{what} already has {clash!r}, so no part can be called so"
        hint = f"rename the objects with the extension {clash}, or choose another format"
        raise ConfigError("config.invalid_value", message, where="shards.format", hint=hint)
