"""The index of a segment as columns: six .npy files, for readers that have numpy alone.

==========  ========================================================================
``rows``    one item for each sample, in the order of the segment's rows: `ROWS`
``parts``   one for each part of a sample: `PARTS`
``keys``    the keys of all samples, one after the other, in UTF-8
``names``   the names of the shards, and
``exts``    the extensions of parts, in UTF-8: others refer to them by number
``blocks``  one for each 4,096 rows, with their checksums: `BLOCKS`
==========  ========================================================================

Each is an array of one dimension whose items begin at byte 256, so that a block is read by its
ranges of the files; ``numpy.load(path, mmap_mode="r")`` maps a whole one. Nothing is pickled.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from larder.errors import DamageError, ObjectError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import MAKE_AGAIN
from larder.samples.indexed import IndexedPart, IndexedSample
from larder.store import object_url
from larder.store.base import Readable
from larder.store.own_files import published_file_errors
from larder.versions.documents import SegmentDocument

HEADER_BYTES = 256

BLOCK_ROWS = 4_096

NONE = -1
"""The label of a sample without one, and the offset of a part that is no range of its shard."""

ROWS = np.dtype(
    [
        ("key_end", "<i8"),
        ("shard", "<i4"),
        ("label", "<i4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("part_end", "<i8"),
    ]
)
"""A sample: its key and its parts end there, and begin where those of the row before end."""

PARTS = np.dtype([("offset", "<i8"), ("length", "<i8"), ("ext", "<i4"), ("crc32c", "<u4")])

KEYS = np.dtype("|u1")

BLOCKS = np.dtype(
    [
        ("key_start", "<i8"),
        ("part_start", "<i8"),
        ("rows_crc32c", "<u4"),
        ("parts_crc32c", "<u4"),
        ("keys_crc32c", "<u4"),
    ]
)
"""A block of rows: where its keys and parts begin, and the CRC-32C of its items of each file."""

_ITEMS = {"rows": ROWS, "parts": PARTS, "keys": KEYS}

_Array = npt.NDArray[Any]


def array_header(dtype: np.dtype[Any], length: int) -> bytes:
    """What precedes the items of an array in a .npy file, of version 1.0 of numpy's format."""
    descr = np.lib.format.dtype_to_descr(dtype)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({length},), }}".encode()
    rest = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + rest.to_bytes(2, "little") + text.ljust(rest - 1) + b"\n"


def checksum(items: _Array) -> int:
    crc32c: int = google_crc32c.value(items.tobytes())
    return crc32c


class SegmentColumns:
    """Reads the samples of a segment, a block of rows at a time.

    Names and checksums are read at once, and compared with the digests in segment.json; what is
    read of the other files is compared with the checksums. What differs is a `DamageError`.
    """

    def __init__(self, store: Readable, segment: SegmentDocument) -> None:
        self._store = store
        self._segment = segment
        self._rows = sum(split.samples for split in segment.splits.values())
        self._names, self._exts = (
            [text.decode() for text in self._whole(role).tolist()] for role in ("names", "exts")
        )
        self._blocks = self._whole("blocks")

    def samples(self, first_row: int, rows: int) -> Iterator[list[IndexedSample]]:
        """The samples of some rows, in lists of one block or a part of it."""
        stop = first_row + rows
        for first in range(first_row - first_row % BLOCK_ROWS, stop, BLOCK_ROWS):
            yield self._block(first)[max(0, first_row - first) : stop - first]

    def _block(self, first_row: int) -> list[IndexedSample]:
        block = self._blocks[first_row // BLOCK_ROWS]
        key_start, part_start = int(block["key_start"]), int(block["part_start"])
        stop = min(first_row + BLOCK_ROWS, self._rows)
        rows = self._items("rows", first_row, stop, block["rows_crc32c"])
        part_ends, key_ends = rows["part_end"] - part_start, rows["key_end"] - key_start
        part_stop, key_stop = int(rows["part_end"][-1]), int(rows["key_end"][-1])
        parts = self._items("parts", part_start, part_stop, block["parts_crc32c"])
        keys = self._items("keys", key_start, key_stop, block["keys_crc32c"]).tobytes()
        exts = [self._exts[number] for number in parts["ext"].tolist()]
        offsets = [None if offset == NONE else offset for offset in parts["offset"].tolist()]
        numbers = (parts[name].tolist() for name in ("length", "crc32c"))
        entries = list(map(IndexedPart, exts, offsets, *numbers))
        columns = (rows[name].tolist() for name in ("shard", "offset", "length", "label"))
        samples, key_at, part_at = [], 0, 0
        for key_end, part_end, shard, offset, length, label in zip(
            key_ends.tolist(), part_ends.tolist(), *columns, strict=True
        ):
            key, own_parts = keys[key_at:key_end].decode(), tuple(entries[part_at:part_end])
            place = self._names[shard], offset, length, None if label == NONE else label
            samples.append(IndexedSample(key, *place, own_parts))
            key_at, part_at = key_end, part_end
        return samples

    def _items(self, role: str, start: int, stop: int, crc32c: int) -> _Array:
        """Some items of a file, compared with their checksum."""
        dtype = _ITEMS[role]
        size = dtype.itemsize
        data = self._bytes(role, HEADER_BYTES + start * size, (stop - start) * size)
        items: _Array = np.frombuffer(data, dtype)
        if checksum(items) != crc32c:
            message = "the bytes do not match their checksum"
            raise DamageError("damage.record", message, where=self._where(role), hint=MAKE_AGAIN)
        return items

    def _whole(self, role: str) -> _Array:
        file = self._segment.file(role)
        data = self._bytes(role, 0, file.bytes)
        if sha256_hex(data) != file.sha256:
            message = "the bytes do not match the digest"
            raise DamageError("damage.digest", message, where=self._where(role), hint=MAKE_AGAIN)
        array: _Array = np.load(io.BytesIO(data), allow_pickle=False)
        return array

    def _bytes(self, role: str, offset: int, length: int) -> bytes:
        try:
            with published_file_errors():
                path = self._segment.file(role).path
                data = self._store.get(path, offset=offset, length=length)
        except ObjectError as error:
            if error.code not in ("object.truncated", "object.missing"):
                raise
            missing = error.code == "object.missing"
            message = "the file is missing" if missing else "the file is too short"
            where = self._where(role)
            raise DamageError("damage.size", message, where=where, hint=MAKE_AGAIN) from None
        if len(data) < length:
            message = f"the file ends before byte {offset + length:,}"
            raise DamageError("damage.size", message, where=self._where(role), hint=MAKE_AGAIN)
        return data

    def _where(self, role: str) -> str:
        return object_url(self._store.url, self._segment.file(role).path)
