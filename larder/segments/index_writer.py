"""Writes the index of a segment as the arrays that `larder.versions.index` describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import disk_errors, sha256_file
from larder.manifest.manifest_files import ManifestFile
from larder.manifest.sealed import StoredFile
from larder.versions.arrays import HEADER_BYTES, Array, ArrayFile, write_archive
from larder.versions.index import (
    BLOCK_ROWS,
    BLOCKS,
    ITEMS,
    KEYS,
    NONE,
    PARTS,
    ROWS,
    Shard,
    checksum,
    digests_dtype,
)


class IndexWriter(ExitStack):
    """A writer of the arrays; memory grows with the names of shards, not with the rows."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._names: dict[str, int] = {}
        self._exts: dict[str, int] = {}
        self._files: list[tuple[str, int, int, StoredFile]] = []
        self._rows, self._parts, self._keys = (
            self.enter_context(ArrayFile(folder / f"{name}.npy", dtype))
            for name, dtype in ITEMS.items()
        )

    def append(self, shard: str, samples: pa.RecordBatch) -> None:
        lists, keys = samples.column("parts"), samples.column("key")
        rows = np.empty(samples.num_rows, ROWS)
        rows["key_end"] = self._keys.length + np.cumsum(pc.binary_length(keys).to_numpy())
        rows["part_end"] = self._parts.length + np.cumsum(pc.list_value_length(lists).to_numpy())
        rows["shard"] = self._names.setdefault(shard, len(self._names))
        rows["label"] = samples.column("label").fill_null(NONE).to_numpy()
        for name in ("offset", "length"):
            rows[name] = samples.column(name).to_numpy()
        entries = lists.flatten()
        parts = np.empty(len(entries), PARTS)
        parts["ext"] = _numbers(entries.field("ext"), self._exts)
        parts["offset"] = entries.field("offset").fill_null(NONE).to_numpy()
        for name in ("length", "crc32c"):
            parts[name] = entries.field(name).to_numpy()
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(keys)], keys), "")[0].as_py()
        self._rows.append(rows)
        self._parts.append(parts)
        self._keys.append(np.frombuffer(text.encode(), KEYS))

    def add_shard(self, shard: Shard) -> None:
        samples, first = shard.samples, shard.first
        for file in shard.published:
            self._files.append((shard.split, samples, first, file))
            samples = first = 0

    def finish(self) -> ManifestFile:
        """Write the file of role ``rows``."""
        samples = self._rows.length
        files = {
            name: file.finish()
            for name, file in zip(ITEMS, (self._rows, self._parts, self._keys), strict=True)
        }
        arrays = {
            "digests": self._digests(),
            "names": _texts(self._names),
            "exts": _texts(self._exts),
            "blocks": np.array(list(_blocks(files, samples)), BLOCKS),
        }
        for name, items in arrays.items():
            with ArrayFile(self._folder / f"{name}.npy", items.dtype) as file:
                file.append(items)
                files[name] = file.finish()
        path = self._folder / "rows.npz"
        write_archive(path, files)
        with disk_errors(path, reading=True):
            return ManifestFile(path, samples, path.stat().st_size, sha256_file(path))

    def _digests(self) -> Array:
        texts = [
            (split, file.role if file.role != "shard" else "", file.name)
            for split, *_, file in self._files
        ]
        lengths = [max(map(len, column)) for column in zip(*texts, strict=True)] or [0, 0, 0]
        array = np.empty(len(texts), digests_dtype(*lengths))
        for number, (_, *numbers, file) in enumerate(self._files):
            array[number] = (*texts[number], file.bytes, *numbers, bytes.fromhex(file.sha256))
        return array


def _numbers(texts: pa.Array, numbered: dict[str, int]) -> npt.NDArray[np.int32]:
    """Return the numbers of texts; a new text gets the next number."""
    encoded = texts.dictionary_encode()
    each = [numbered.setdefault(text, len(numbered)) for text in encoded.dictionary.to_pylist()]
    numbers: npt.NDArray[np.int32] = np.array(each, np.int32)[encoded.indices.to_numpy()]
    return numbers


def _texts(numbered: Mapping[str, int]) -> Array:
    return np.array([text.encode() for text in numbered], "S")


def _blocks(files: Mapping[str, Path], samples: int) -> Iterator[tuple[int, ...]]:
    """Yield the items of `BLOCKS`. The files are read, as mapped pages would stay in memory."""
    key_start = part_start = 0
    for first in range(0, samples, BLOCK_ROWS):
        block = _read_items(files, "rows", first, min(first + BLOCK_ROWS, samples))
        key_end, part_end = int(block["key_end"][-1]), int(block["part_end"][-1])
        parts = _read_items(files, "parts", part_start, part_end)
        keys = _read_items(files, "keys", key_start, key_end)
        yield key_start, part_start, *map(checksum, (block, parts, keys))
        key_start, part_start = key_end, part_end


def _read_items(files: Mapping[str, Path], name: str, start: int, end: int) -> Array:
    dtype = ITEMS[name]
    path = files[name]
    # numpy.fromfile returns fewer items, without an error, if the disk cannot be read.
    with disk_errors(path, reading=True), path.open("rb") as file:
        file.seek(HEADER_BYTES + start * dtype.itemsize)
        return np.frombuffer(file.read((end - start) * dtype.itemsize), dtype)
