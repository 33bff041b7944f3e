"""The rows that a version omits, found again from its segments and the inventory of its source.

A sample is in the last of the segments that have it, if the source had all of its objects: all
other rows are omitted. What this gives is compared with a digest, or with the version's ID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.files import read_manifest
from larder.manifest.merge import aligned
from larder.manifest.query import Rows
from larder.manifest.schemas import OBJECTS, SAMPLES
from larder.manifest.sort import sort
from larder.pipeline.job import ManifestRef
from larder.pipeline.manifests import fetched, read_ref
from larder.store.base import Store
from larder.versions.documents import SegmentDocument
from larder.versions.omitted import Omitted

__all__ = ["Lost", "find_lost", "omitted_again"]

Lost = npt.NDArray[np.bool_]
"""Of each row of a segment, whether the source did not have all of its objects."""

_OBJECT = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("row", pa.int64(), nullable=False)]
)
_SAMPLE = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)
_KEYS = pa.schema([OBJECTS.field("key")])


def find_lost(root: Store, segment: SegmentDocument, objects: ManifestRef, folder: Path) -> Lost:
    """Which samples of a segment have an object that is not in an inventory.

    Args:
        root: The dataset's root.
        segment: The segment.
        objects: Manifest of schema OBJECTS.
        folder: A private directory, for what does not fit into memory.

    Raises:
        DamageError: A manifest is damaged.
        NotFoundError: A manifest is missing.
    """
    lost = np.zeros(_rows(segment), np.bool_)
    with fetched(root, objects) as path:
        there = Rows(_KEYS, read_manifest(path, OBJECTS, columns=["key"]))
        wanted = Rows(_OBJECT, _objects(root, segment))
        ordered = Rows(_OBJECT, sort(wanted, ("key",), ties=("row",), work_dir=folder))
        for own, known in aligned(ordered, there, ("key",)):
            gone = pc.invert(pc.is_in(own.column("key"), value_set=known.column("key")))
            lost[own.column("row").filter(gone).to_numpy(zero_copy_only=False)] = True
    return lost


def omitted_again(
    root: Store, segments: Sequence[SegmentDocument], lost: Mapping[str, Lost], folder: Path
) -> dict[tuple[str, str], Omitted]:
    """By segment and split, the rows that a version of these segments omits.

    Args:
        root: The dataset's root.
        segments: The segments in the order of the version.
        lost: By segment, what `find_lost` returned.
        folder: A private directory, for what does not fit into memory.

    Raises:
        DamageError: A manifest is damaged.
        NotFoundError: A manifest is missing.
    """
    gone = [lost[segment.id].copy() for segment in segments]
    if len(segments) > 1:
        rows = Rows(_SAMPLE, _samples(root, segments))
        before = ""
        for batch in sort(rows, ("key",), ties=("-segment",), work_dir=folder):
            keys = batch.column("key").to_pylist()
            same = np.array([key == last for key, last in zip(keys, [before, *keys], strict=False)])
            before = keys[-1]
            owners, places = (batch.column(name).to_numpy() for name in ("segment", "row"))
            for number, flags in enumerate(gone):
                flags[places[same & (owners == number)]] = True
    found = {}
    for segment, flags in zip(segments, gone, strict=True):
        for split, facts in segment.splits.items():
            omitted = Omitted.of_mask(flags[facts.first_row : facts.first_row + facts.samples])
            if omitted.count:
                found[segment.id, split] = omitted
    return found


def _rows(segment: SegmentDocument) -> int:
    return sum(split.samples for split in segment.splits.values())


def _objects(root: Store, segment: SegmentDocument) -> Iterator[pa.RecordBatch]:
    """The object of each part, with the row of its sample."""
    first_row = 0
    ref = ManifestRef.of(segment.file("samples"))
    for batch in read_ref(root, ref, SAMPLES, columns=["parts"]):
        lists = batch.column("parts")
        rows = pc.add(pc.cast(pc.list_parent_indices(lists), pa.int64()), first_row)
        sources = lists.flatten().field("source")
        known = pc.is_valid(sources)  # a label has none
        yield pa.RecordBatch.from_arrays(
            [sources.filter(known), rows.filter(known)], schema=_OBJECT
        )
        first_row += batch.num_rows


def _samples(root: Store, segments: Sequence[SegmentDocument]) -> Iterator[pa.RecordBatch]:
    for number, segment in enumerate(segments):
        first_row = 0
        ref = ManifestRef.of(segment.file("samples"))
        for batch in read_ref(root, ref, SAMPLES, columns=["key"]):
            rows = pa.array(np.arange(first_row, first_row + batch.num_rows))
            numbers = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
            columns = [batch.column("key"), numbers, rows]
            yield pa.RecordBatch.from_arrays(columns, schema=_SAMPLE)
            first_row += batch.num_rows
