"""The index of a segment as rows, for steps that read much of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa

from larder.errors import DamageError
from larder.jobs.manifests import fetched
from larder.manifest.schemas import INDEXED, lists_of
from larder.manifest.sealed import StoredFile
from larder.store import object_url, open_store
from larder.store.base import Store
from larder.versions.arrays import Array
from larder.versions.index import BLOCK_ROWS, NONE, SegmentIndex


@contextmanager
def open_index(root: Store, file: StoredFile) -> Iterator[SegmentIndex]:
    """Open the index of a segment, given its file of role ``rows``, and compare the digest.

    From a bucket the file is downloaded once for all steps of this process.
    """
    with fetched(root, file) as path:
        if root.features.local_path:
            yield SegmentIndex(root, file, path.parent)
            return
        store, copy = open_store(str(path.parent)), replace(file, path=path.name)
        try:
            yield SegmentIndex(store, copy, path.parent)
        except DamageError as error:
            where, hint = object_url(root.url, file.path), error.hint
            raise DamageError(error.code, error.message, where=where, hint=hint) from error


def read_rows(
    root: Store, file: StoredFile, first_row: int = 0, rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield consecutive rows of a segment's index, by `INDEXED`; by default all."""
    with open_index(root, file) as index:
        stop = index.count if rows is None else first_row + rows
        for start in range(first_row, stop, BLOCK_ROWS):
            yield index_rows(index, np.arange(start, min(start + BLOCK_ROWS, stop)))


def index_rows(index: SegmentIndex, rows: Array) -> pa.RecordBatch:
    """Return samples by `INDEXED`, given their rows in ascending order."""
    places = index.places(rows)
    numbers, parts = places.rows, places.parts
    names, exts = (pa.array(texts, pa.string()) for texts in (index.names, index.exts))
    fields = {
        "ext": exts.take(pa.array(parts["ext"])),
        "offset": pa.array(parts["offset"], mask=parts["offset"] == NONE),
        **{name: pa.array(parts[name]) for name in ("length", "crc32c")},
    }
    offsets = np.append(0, np.cumsum(places.part_counts))
    values = {
        "key": pa.array(index.keys(rows), pa.string()),
        "shard": names.take(pa.array(numbers["shard"])),
        **{name: pa.array(numbers[name]) for name in ("offset", "length")},
        "label": pa.array(numbers["label"], mask=numbers["label"] == NONE),
        "parts": lists_of(INDEXED.field("parts").type, fields.__getitem__, offsets),
    }
    return pa.RecordBatch.from_arrays([values[name] for name in INDEXED.names], schema=INDEXED)
