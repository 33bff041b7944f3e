"""The manifest of objects: the inventory, with the checksum of every object that was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from larder.manifest.files import ManifestFile, ManifestWriter
from larder.manifest.schemas import OBJECTS
from larder.pipeline.job import Job, ManifestRef
from larder.pipeline.manifests import read_ref
from larder.store.base import Store
from larder.transfer.copy import format_crc32c
from larder.transfer.receipts import COPIED

__all__ = ["SUMS", "write_objects"]

SUMS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
    ]
)
"""One row per object that was read into a shard."""


def write_objects(
    root: Store, job: Job, mirror: ManifestRef | None, sums: Iterable[pa.RecordBatch], path: Path
) -> ManifestFile:
    """Write the inventory with the checksums of what was read.

    An object that was copied and not read (its sample was left out) has the copy's checksum.

    Args:
        root: The dataset's root.
        job: The run.
        mirror: ManifestRef of schema COPIED, or None without a mirror.
        sums: Rows of `SUMS`, ordered by key.
        path: The manifest to write.
    """
    inventory = read_ref(root, job.inventory, OBJECTS)
    copied = _Ahead(_copied(root, mirror))
    read = _Ahead(_read(sums))
    with ManifestWriter(path, OBJECTS) as writer:
        for batch in inventory:
            keys = batch.column("key").to_pylist()
            pairs = [(read.get(key), copied.get(key)) for key in keys]
            writer.append_batch(_with_checksums(batch, [one or other for one, other in pairs]))
    return writer.file


def _with_checksums(batch: pa.RecordBatch, checksums: list[str | None]) -> pa.RecordBatch:
    place = OBJECTS.get_field_index("checksum")
    column = pa.array(checksums, pa.string())
    return batch.set_column(place, OBJECTS.field(place), column).cast(OBJECTS)


def _read(sums: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str]]:
    for batch in sums:
        keys, crcs = (column.to_pylist() for column in batch.columns)
        yield from zip(keys, map(format_crc32c, crcs), strict=True)


def _copied(root: Store, mirror: ManifestRef | None) -> Iterator[tuple[str, str]]:
    """The checksums of what was copied, by key; those of copies known by their etag are not."""
    if mirror is None:
        return
    for batch in read_ref(root, mirror, COPIED, columns=["key", "checksum"]):
        pairs = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield from ((key, checksum) for key, checksum in pairs if checksum is not None)


class _Ahead:
    """Looks keys up in pairs that are ordered by key, for keys that only grow."""

    def __init__(self, pairs: Iterator[tuple[str, str]]) -> None:
        self._pairs = pairs
        self._next = next(pairs, None)

    def get(self, key: str) -> str | None:
        wanted = key.encode()
        while self._next is not None and self._next[0].encode() < wanted:
            self._next = next(self._pairs, None)
        return self._next[1] if self._next is not None and self._next[0] == key else None
