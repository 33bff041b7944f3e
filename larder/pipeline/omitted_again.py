"""The rows that a version omits, found again from its segments and the inventory of its source.

A sample is in the last of the segments that have it, if the source had all of its objects: all
other rows are omitted. What this gives is compared with a digest, or with the version's ID.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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

_Flags = npt.NDArray[np.bool_]

_OBJECT = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("row", pa.int64(), nullable=False),
    ]
)
_SAMPLE = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)
_THERE = pa.schema([OBJECTS.field(name) for name in ("key", "etag")])


class Lost(NamedTuple):
    """Of each row of a segment, whether the source did not have all of its objects.

    Attributes:
        missing: One of them was not there.
        changed: One of them was not there, or had another etag: it may still be the same sample,
            written again, or one that was left out as bad.
    """

    missing: _Flags
    changed: _Flags


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
    lost = Lost(np.zeros(_rows(segment), np.bool_), np.zeros(_rows(segment), np.bool_))
    with fetched(root, objects) as path:
        there = Rows(_THERE, read_manifest(path, OBJECTS, columns=_THERE.names))
        wanted = Rows(_OBJECT, _objects(root, segment))
        ordered = Rows(_OBJECT, sort(wanted, ("key",), ties=("row",), work_dir=folder))
        for own, known in aligned(ordered, there, ("key",)):
            places = pc.index_in(own.column("key"), value_set=known.column("key"))
            same = pc.equal(known.column("etag").take(places), own.column("etag"))
            rows = own.column("row").to_numpy()
            lost.missing[rows[pc.is_null(places).to_numpy(zero_copy_only=False)]] = True
            changed = pc.invert(pc.fill_null(same, False))
            lost.changed[rows[changed.to_numpy(zero_copy_only=False)]] = True
    return lost


def omitted_again(
    root: Store, segments: Sequence[SegmentDocument], lost: Sequence[Lost], folder: Path
) -> Iterator[dict[tuple[str, str], Omitted]]:
    """By segment and split, the rows that a version of these segments may omit.

    Args:
        root: The dataset's root.
        segments: The segments in the order of the version.
        lost: Of each segment, what `find_lost` returned.
        folder: A private directory, for what does not fit into memory.

    Yields:
        Without the samples of which an object is missing, then without those of which one changed.

    Raises:
        DamageError: A manifest is damaged.
        NotFoundError: A manifest is missing.
    """
    replaced = _replaced(root, segments, folder)
    yield _omitted(segments, [own | each.missing for own, each in zip(replaced, lost, strict=True)])
    yield _omitted(segments, [own | each.changed for own, each in zip(replaced, lost, strict=True)])


def _replaced(root: Store, segments: Sequence[SegmentDocument], folder: Path) -> list[_Flags]:
    """Of each row of each segment, whether a later segment has a sample of the same key."""
    found = [np.zeros(_rows(segment), np.bool_) for segment in segments]
    if len(segments) > 1:
        rows = Rows(_SAMPLE, _samples(root, segments))
        before = ""
        for batch in sort(rows, ("key",), ties=("-segment",), work_dir=folder):
            keys = batch.column("key").to_pylist()
            same = np.array([key == last for key, last in zip(keys, [before, *keys], strict=False)])
            before = keys[-1]
            owners, places = (batch.column(name).to_numpy() for name in ("segment", "row"))
            for number, flags in enumerate(found):
                flags[places[same & (owners == number)]] = True
    return found


def _omitted(
    segments: Sequence[SegmentDocument], gone: Sequence[_Flags]
) -> dict[tuple[str, str], Omitted]:
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
        parts = lists.flatten()
        known = pc.is_valid(parts.field("source"))  # a label has none
        columns = [parts.field("source"), parts.field("etag"), rows]
        yield pa.RecordBatch.from_arrays([each.filter(known) for each in columns], schema=_OBJECT)
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
