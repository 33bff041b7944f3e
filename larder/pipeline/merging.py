"""Merges receipts of copies, so that what planning reads does not grow with the number of runs.

The receipts of one run are left alone however many they are: their number follows from that of the
objects. When there are those of more than 16 runs, the small ones are merged into one. Nothing is
deleted, because another run may be reading it: a document names what is merged. If two runs do this
at the same time, the document of the second one counts; what only the first one merged is read as
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.files import write_manifest
from larder.manifest.query import Rows
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import sort
from larder.manifest.writer import ManifestFile
from larder.pipeline.copied import find_receipts
from larder.pipeline.job import ManifestRef, put_named, scratch
from larder.pipeline.manifests import read_ref
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import seal

MAX_RUNS = 16
"""Maximum number of runs, and of merged files, whose receipts are read one by one."""

SMALL = 10
"""Receipts are small if they have less than this part of the bytes of all: a tenth."""


def merge_receipts(root: Store) -> bool:
    """Merge the receipts of copies if they are those of too many runs; returns whether it did.

    Of the copies of an object, the latest is kept: the others were overwritten by it.
    """
    found = find_receipts(root)
    groups = [[file] for file in found.merged] + list(found.of_order.values())
    if len(groups) <= MAX_RUNS:
        return False
    total = sum(map(_bytes, groups))
    small = list(chain.from_iterable(group for group in groups if SMALL * _bytes(group) < total))
    with scratch() as folder:
        file = _merged(root, small, folder)
        key = f"{layout.merged_copies_prefix()}{file.sha256}.parquet"
        new = put_named(root, key, file)
    files = [*(file for file in found.merged if file not in small), new]
    covered = found.covered | {ref.sha256 for ref in small if ref not in found.merged}
    root.put(layout.merged_copies_key(), seal({"files": files, "receipts": sorted(covered)}))
    return True


def _bytes(group: Iterable[ManifestRef]) -> int:
    return sum(ref.bytes for ref in group)


def _merged(root: Store, refs: Iterable[ManifestRef], folder: Path) -> ManifestFile:
    rows = Rows(OBJECTS, chain.from_iterable(read_ref(root, ref, OBJECTS) for ref in refs))
    ties = ("-modified", "etag", "mirror_etag", "-checksum")
    with closing(sort(rows, ("key",), ties=ties, work_dir=folder)) as batches:
        return write_manifest(folder / "merged.parquet", OBJECTS, _firsts(batches))


def _firsts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first row of each key."""
    last: str | None = None
    for batch in batches:
        keys = batch.column("key")
        first = np.ones(len(keys), np.bool_)
        first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        first[0] = keys[0].as_py() != last
        last = keys[-1].as_py()
        yield batch.filter(pa.array(first))
