"""Writes the index of a segment as the columns that `larder.versions.columns` describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import disk_errors, sha256_file
from larder.manifest.files import ManifestFile
from larder.versions.columns import (
    BLOCK_ROWS,
    BLOCKS,
    HEADER_BYTES,
    KEYS,
    NONE,
    PARTS,
    ROWS,
    array_header,
    checksum,
    digests_dtype,
)

_Array = npt.NDArray[Any]


class ColumnsWriter(ExitStack):
    """Writes the columns into a folder, as a context manager. Memory does not grow with the rows,
    but for the names of shards.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._names: dict[str, int] = {}
        self._exts: dict[str, int] = {}
        self._files: list[tuple[bytes, bytes, int, int, bytes]] = []
        self._rows, self._parts, self._keys = (
            self.enter_context(_ArrayFile(folder / f"{role}.npy", dtype))
            for role, dtype in (("rows", ROWS), ("parts", PARTS), ("keys", KEYS))
        )

    def append(self, samples: pa.RecordBatch) -> None:
        """Add rows of `larder.manifest.schemas.SAMPLES`."""
        lists, keys = samples.column("parts"), samples.column("key")
        rows = np.empty(samples.num_rows, ROWS)
        rows["key_end"] = self._keys.length + np.cumsum(pc.binary_length(keys).to_numpy())
        rows["part_end"] = self._parts.length + np.cumsum(pc.list_value_length(lists).to_numpy())
        rows["shard"] = _numbers(samples.column("shard"), self._names)
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

    def add_file(self, split: str, name: str, size_bytes: int, samples: int, sha256: str) -> None:
        """Add a row of `larder.manifest.schemas.SHARDS`."""
        texts = split.encode(), name.encode()
        self._files.append((*texts, size_bytes, samples, bytes.fromhex(sha256)))

    def finish(self) -> Mapping[str, ManifestFile]:
        """The files by role."""
        files = {"rows": self._rows.finish(), "parts": self._parts.finish()}
        files["keys"] = self._keys.finish()
        arrays = {
            "names": _texts(self._names),
            "exts": _texts(self._exts),
            "blocks": np.array(list(_blocks(files)), BLOCKS),
            "digests": self._digests(),
        }
        for role, items in arrays.items():
            with _ArrayFile(self._folder / f"{role}.npy", items.dtype) as file:
                file.append(items)
                files[role] = file.finish()
        return files

    def _digests(self) -> _Array:
        split_bytes = max((len(file[0]) for file in self._files), default=0)
        name_bytes = max((len(file[1]) for file in self._files), default=0)
        return np.array(self._files, digests_dtype(split_bytes, name_bytes))


class _ArrayFile(ExitStack):
    """An array of one dimension that is written piece by piece."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.length = 0
        self._path = path
        self._dtype = dtype
        with disk_errors(path):
            self._file = self.enter_context(path.open("wb"))
            self._file.write(bytes(HEADER_BYTES))

    def append(self, items: _Array) -> None:
        with disk_errors(self._path):
            self._file.write(items.tobytes())
        self.length += len(items)

    def finish(self) -> ManifestFile:
        with disk_errors(self._path):
            self._file.seek(0)
            self._file.write(array_header(self._dtype, self.length))
            self._file.close()
            size_bytes = HEADER_BYTES + self.length * self._dtype.itemsize
            return ManifestFile(self._path, self.length, size_bytes, sha256_file(self._path))


def _numbers(texts: pa.Array, numbered: dict[str, int]) -> npt.NDArray[np.int32]:
    """The numbers of texts, of which new ones get the next."""
    encoded = texts.dictionary_encode()
    each = [numbered.setdefault(text, len(numbered)) for text in encoded.dictionary.to_pylist()]
    numbers: npt.NDArray[np.int32] = np.array(each, np.int32)[encoded.indices.to_numpy()]
    return numbers


def _texts(numbered: Mapping[str, int]) -> _Array:
    return np.array([text.encode() for text in numbered], "S")


def _blocks(files: Mapping[str, ManifestFile]) -> Iterator[tuple[int, ...]]:
    """The items of `BLOCKS`."""
    if not files["rows"].rows:
        return
    rows, parts, keys = (np.load(files[role].path, mmap_mode="r") for role in files)
    key_start = part_start = 0
    for first in range(0, len(rows), BLOCK_ROWS):
        block = rows[first : first + BLOCK_ROWS]
        key_end, part_end = int(block["key_end"][-1]), int(block["part_end"][-1])
        items = block, parts[part_start:part_end], keys[key_start:key_end]
        yield key_start, part_start, *map(checksum, items)
        key_start, part_start = key_end, part_end
