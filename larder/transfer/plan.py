"""The plan of a copy: what is missing or different at the storage, as two manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from larder.manifest.files import ManifestFile, ManifestWriter
from larder.manifest.schemas import OBJECTS
from larder.store.base import ObjectInfo
from larder.transfer.copy import Copied
from larder.transfer.difference import KnownCopy, compare
from larder.transfer.inventory import object_batch
from larder.transfer.receipts import COPIED, copied_batch

__all__ = ["CopyPlan", "plan_copies"]

Row = TypeVar("Row")

ROWS = 20_000


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What to copy, and what is there already.

    Attributes:
        copies: Manifest of schema OBJECTS: objects to copy, ordered by key.
        kept: Manifest of schema COPIED: objects that are mirrored already, ordered by key.
        objects: How many to copy.
        bytes: Their sizes together.
    """

    copies: ManifestFile
    kept: ManifestFile
    objects: int
    bytes: int


def plan_copies(
    source: Iterable[ObjectInfo],
    mirrored: Iterable[ObjectInfo],
    known: Iterable[KnownCopy],
    folder: Path,
    *,
    md5: bool,
) -> CopyPlan:
    """Hold the inventory against the mirror, in one pass and constant memory.

    Args:
        source: The inventory, ordered by key.
        mirrored: The listing of the mirror, keys as at the source, ordered by key.
        known: Copies verified before, ordered by key.
        folder: Where the two manifests are written.
        md5: Whether equal etags of 32 hex digits prove equal contents here.
    """
    count = size_bytes = 0
    with (
        ManifestWriter(folder / "copies.parquet", OBJECTS) as copies,
        ManifestWriter(folder / "kept.parquet", COPIED) as kept,
    ):
        to_copy = _Rows(copies, object_batch)
        to_keep = _Rows(kept, copied_batch)
        for info, verdict, there, pair in compare(source, mirrored, known, md5=md5):
            if verdict == "same" and there is not None:
                to_keep.add(Copied(info, there, pair.checksum if pair else None, "same"))
                continue
            count += 1
            size_bytes += info.size_bytes
            to_copy.add(info)
        to_copy.flush()
        to_keep.flush()
    return CopyPlan(copies=copies.file, kept=kept.file, objects=count, bytes=size_bytes)


class _Rows(Generic[Row]):
    """Gathers rows into batches for a manifest."""

    def __init__(
        self, manifest: ManifestWriter, to_batch: Callable[[Sequence[Row]], pa.RecordBatch]
    ) -> None:
        self._manifest = manifest
        self._to_batch = to_batch
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._manifest.append_batch(self._to_batch(self._rows))
            self._rows = []
