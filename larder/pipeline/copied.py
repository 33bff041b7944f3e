"""What is already copied: the listing of the mirror, and the receipts of its copies."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from larder.limits import map_ahead
from larder.manifest.schemas import OBJECTS
from larder.pipeline.job import CopyBatch, ManifestRef, listed
from larder.pipeline.manifests import read_ref
from larder.store.base import ObjectInfo, Store
from larder.versions import layout

__all__ = ["batch_name", "batch_receipts", "mirrored", "partial_receipts", "read_receipts"]

READERS = 4
"""Number of receipts held in memory at the same time, each of at most 50,000 objects."""


def mirrored(root: Store) -> Iterator[ObjectInfo]:
    """The objects of the mirror in order, with their keys in the source."""
    prefix = layout.mirror_prefix()
    for info in listed(root, prefix):
        yield replace(info, key=info.key.removeprefix(prefix))


def batch_name(sample_order: ManifestRef, batch: CopyBatch) -> str:
    """The name of a batch of copies, from the sample order and its rows."""
    return f"{sample_order.sha256[:16]}-{batch.first_row:012d}-{batch.rows}"


def read_receipts(root: Store) -> Iterator[pa.RecordBatch]:
    """The rows of all receipts of the dataset, of schema OBJECTS.

    A finished batch has a complete receipt; its partial ones are not read.
    """

    def read(ref: ManifestRef) -> list[pa.RecordBatch]:
        return list(read_ref(root, ref, OBJECTS))

    with ThreadPoolExecutor(READERS, thread_name_prefix="receipt") as pool:
        yield from chain.from_iterable(map_ahead(pool, read, _receipts(root), window=READERS))


def batch_receipts(root: Store, sample_order: ManifestRef) -> list[tuple[range, ManifestRef]]:
    """The receipts of the finished batches of a sample order, with their rows of the order."""
    found: list[tuple[range, ManifestRef]] = []
    for info in listed(root, f"{layout.copies_prefix()}{sample_order.sha256[:16]}-"):
        first_row, rows = map(int, info.key.split("/")[-2].split("-")[1:])
        found.append((range(first_row, first_row + rows), _receipt(info)))
    return found


def partial_receipts(root: Store, batch: str) -> Iterator[ManifestRef]:
    """The receipts that a batch wrote before it was finished."""
    yield from map(_receipt, listed(root, layout.partial_copies_prefix(batch)))


def _receipts(root: Store) -> Iterator[ManifestRef]:
    finished: set[str] = set()
    for info in listed(root, layout.copies_prefix()):
        batch = info.key.split("/")[-2]
        partial = info.key.startswith(layout.partial_copies_prefix())
        if not partial:  # these are listed before the partial ones
            finished.add(batch)
        if not partial or batch not in finished:
            yield _receipt(info)


def _receipt(info: ObjectInfo) -> ManifestRef:
    digest = info.key.rpartition("/")[2].removesuffix(".parquet")
    return ManifestRef(info.key, digest, info.size_bytes, rows=-1)
