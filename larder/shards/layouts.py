"""What all samples of a segment have in common, from the columns of a sample order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import Layout
from larder.errors import ConfigError
from larder.units import format_count


def survey_parts(batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
    """The extensions that parts have, and whether there are labels; ``before`` is kept."""
    exts = set(before.parts) if before else set()
    labelled = before.labelled if before else False
    for batch in batches:
        exts.update(pc.unique(batch.column("parts").flatten().field("ext")).to_pylist())
        labelled |= batch.column("label").null_count < len(batch)
    return Layout(dict.fromkeys(sorted(exts)), labelled)


def survey_sizes(batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
    """The parts that every sample has, with their lengths; ``before`` has to hold too.

    ``config.invalid_value``: a sample lacks a part, has another one, or one of another length; or
    only some have labels.
    """
    found = before
    for batch in batches:
        if len(batch):
            found = found or _of_the_first(batch)
            _compare(batch, found)
    return found or Layout({}, False)


def _of_the_first(batch: pa.RecordBatch) -> Layout:
    parts = batch.column("parts")[0].as_py()
    sizes = {part["ext"]: part["size_bytes"] for part in parts}
    return Layout(dict(sorted(sizes.items())), batch.column("label")[0].is_valid)


def _compare(batch: pa.RecordBatch, layout: Layout) -> None:
    """Parts are sorted by extension, so all samples have to have the same two columns of them."""
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
        raise _differs(lists[int(rows[0])].as_py(), layout.parts)
    unlike = batch.column("label").is_valid().to_numpy(zero_copy_only=False) != layout.labelled
    if unlike.any():
        part = lists[int(np.flatnonzero(unlike)[0])].as_py()[0]
        has = (
            "no label, although others have one" if layout.labelled else "a label, others have none"
        )
        raise _refusal(part["key"], f"the sample has {has}")


def _differs(parts: list[dict[str, object]], wanted: Mapping[str, int | None]) -> ConfigError:
    found = {str(part["ext"]): part for part in parts}
    where = str(parts[0]["key"])
    for ext, size_bytes in wanted.items():
        if ext not in found:
            return _refusal(where, f"the sample has no part {ext}, although others have one")
        if found[ext]["size_bytes"] != size_bytes:
            has = format_count(int(str(found[ext]["size_bytes"])), "byte")
            message = f"the part has {has}, not {size_bytes:,} as in other samples"
            return _refusal(str(found[ext]["key"]), message)
    ext = min(found.keys() - wanted.keys())
    return _refusal(str(found[ext]["key"]), f"other samples have no part {ext}")


def _refusal(where: str, message: str) -> ConfigError:
    return ConfigError(
        "config.invalid_value",
        message,
        where=where,
        hint="all samples have equal parts in this shards.format: exclude it, or choose another",
    )
