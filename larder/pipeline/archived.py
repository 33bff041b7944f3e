"""Archived objects that a run would have to read: found for the plan, without reading any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.manifest.writer import ManifestFile
from larder.pipeline.selected import Selected
from larder.samples.order import FROM_PREVIOUS, from_objects
from larder.source.archived import KEYS, archived_among
from larder.source.storable import Unfit


def archived_to_read(
    archived: ManifestFile | None, selected: Selected, *, mirror: bool, work_dir: Path
) -> Unfit:
    """The archived objects that have to be read: not those that were packed or copied before.

    ``archived`` lists all archived objects in the source. With ``mirror``, objects are copied
    first, and read only if they have no copy yet.
    """
    if archived is None:
        return Unfit()
    return archived_among(_keys(selected, mirror=mirror), archived, work_dir)


def _keys(selected: Selected, *, mirror: bool) -> Iterator[pa.RecordBatch]:
    """Keys of the objects that are read from the source."""
    columns = ("parts", *FROM_PREVIOUS)
    rows = None if mirror else selected.samples  # objects of no sample are copied, but not packed
    for batch in read_manifest(selected.file.path, SAMPLE_ORDER, columns=columns, rows=rows):
        lists = batch.column("parts")
        read = np.repeat(from_objects(batch), pc.list_value_length(lists).to_numpy())
        parts = lists.flatten()
        if mirror:
            read &= parts.field("mirror_etag").is_null().to_numpy(zero_copy_only=False)
        yield pa.record_batch([parts.field("key").filter(pa.array(read))], schema=KEYS)
