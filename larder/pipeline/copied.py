"""What is copied already: the mirror as it stands, and the receipts that vouch for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from larder.errors import NotFoundError
from larder.limits import map_ahead
from larder.manifest.sort import sort_batches
from larder.pipeline.job import ManifestRef, listed
from larder.pipeline.manifests import read_ref
from larder.store.base import ObjectInfo, Store
from larder.transfer.difference import KnownCopy
from larder.transfer.receipts import COPIED, known_copies
from larder.versions import layout
from larder.versions.publish import TAG, read_tag, read_version

__all__ = ["batch_receipts", "copies_known", "mirrored", "partial_receipts"]

READERS = 8
"""Receipts that are read, and held in memory, at once: of 50,000 objects each at most."""


def mirrored(root: Store) -> Iterator[ObjectInfo]:
    """The objects of the mirror, by the keys that they have at the source, in order."""
    prefix = layout.mirror_prefix()
    for info in listed(root, prefix):
        yield replace(info, key=info.key.removeprefix(prefix))


def copies_known(root: Store, segment: str, folder: Path) -> Iterator[KnownCopy]:
    """Verified copies: of the latest version, and of runs that were cut off or failed.

    Args:
        root: The dataset's root.
        segment: ID of the segment to build.
        folder: A private directory for temporary files.
    """
    batches = chain(_of_latest(root), _of_work(root, segment))
    return known_copies(sort_batches(batches, COPIED, ["key"], work_dir=folder))


def batch_receipts(root: Store, segment: str) -> Iterator[ManifestRef]:
    """The receipts of finished batches of copies: their names are their digests."""
    partial = layout.partial_copies_prefix(segment)
    for info in listed(root, layout.copies_prefix(segment)):
        if not info.key.startswith(partial):
            yield _receipt(info)


def partial_receipts(root: Store, segment: str, batch: str) -> Iterator[ManifestRef]:
    """Those that a batch left before it was finished."""
    yield from map(_receipt, listed(root, layout.partial_copies_prefix(segment, batch)))


def _receipt(info: ObjectInfo) -> ManifestRef:
    digest = info.key.rpartition("/")[2].removesuffix(".parquet")
    return ManifestRef(info.key, digest, info.size_bytes, rows=-1)


def _of_latest(root: Store) -> Iterator[pa.RecordBatch]:
    tag = read_tag(root, TAG)
    version = read_version(root, tag["version"]) if tag else None
    for file in version.files if version else ():
        if file.role == "mirror":
            ref = ManifestRef(file.path, file.sha256, file.bytes, rows=-1)
            with suppress(NotFoundError):  # nothing is known then, and all is copied again
                yield from read_ref(root, ref, COPIED)


def _of_work(root: Store, segment: str) -> Iterator[pa.RecordBatch]:
    def read(ref: ManifestRef) -> list[pa.RecordBatch]:
        return list(read_ref(root, ref, COPIED))

    with ThreadPoolExecutor(READERS, thread_name_prefix="receipt") as pool:
        refs = _unfinished_receipts(root, segment)
        yield from chain.from_iterable(map_ahead(pool, read, refs, window=READERS))


def _unfinished_receipts(root: Store, segment: str) -> Iterator[ManifestRef]:
    """Those of this segment and of every segment that is not whole.

    A run that failed because of one object leads to another segment once that is mended; what it
    copied is still there. Of a batch that was finished, its own receipt says all.
    """
    complete = ""
    finished: set[str] = set()
    for info in listed(root, layout.segments_prefix()):
        own = info.key.removeprefix(layout.segments_prefix()).partition("/")[0]
        if info.key == layout.segment_key(own):  # it is listed before the work of its segment
            complete = own
        elif info.key.startswith(layout.copies_prefix(own)) and (own != complete or own == segment):
            batch = info.key.rpartition("/")[0]
            partial = layout.partial_copies_prefix(own)
            if not info.key.startswith(partial):  # these are listed before the partial ones
                finished.add(batch)
                yield _receipt(info)
            elif layout.copies_prefix(own) + batch.removeprefix(partial) not in finished:
                yield _receipt(info)
