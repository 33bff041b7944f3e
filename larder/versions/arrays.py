"""Arrays in one file: a zip archive of .npy files, read whole by ``numpy.load`` and by ranges.

The files are stored uncompressed, one after the other. The items of each begin at a multiple of 64
bytes, so that readers can map them; nothing is pickled. An archive contains no times, so equal
arrays give equal bytes.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from larder.disk import disk_errors
from larder.errors import DamageError, ObjectError
from larder.manifest.sealed import MAKE_AGAIN, StoredFile
from larder.samples.decoders import read_header
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import once_more, published_file_errors

HEADER_BYTES = 256
"""Size of the header of a .npy file; the items follow."""

_ALIGNMENT = 64
_PIECE_BYTES = 1 << 20

_TAIL_BYTES = 256 << 10
"""Size of the end of an archive that a reader requests first."""

_SUFFIX = ".npy"

_LOCAL = struct.Struct("<4s5H3L2H")
_LOCAL_SIZES = struct.Struct("<2H2Q")
_PADDING = struct.Struct("<2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_CENTRAL_SIZES = struct.Struct("<2H3Q")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")
"""The structures of an archive with 64-bit sizes. `zipfile` writes others in each Python."""

_VERSION, _FIRST_DAY, _SMALL, _LARGE = 45, 33, 0xFFFF, 0xFFFF_FFFF

Array = npt.NDArray[Any]


def array_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Make the header of a .npy file, in version 1.0 of numpy's format."""
    descr = np.lib.format.dtype_to_descr(dtype)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({length},), }}".encode()
    rest = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + rest.to_bytes(2, "little") + text.ljust(rest - 1) + b"\n"


def read_array(data: bytes) -> Array:
    """Decode a .npy file; ValueError if the bytes are no such array.

    Nothing is unpickled, and no memory is allocated for missing items.
    """
    file = io.BytesIO(data)
    try:
        shape, by_columns, dtype = read_header(file, [(1, 0)])
    except (ValueError, TypeError, RecursionError):
        raise ValueError("not an array of numpy") from None
    rest = len(data) - file.tell()
    if by_columns or dtype.hasobject or not dtype.itemsize or min(shape, default=-1) < 0:
        raise ValueError("an array of another kind")
    if math.prod(shape) * dtype.itemsize != rest:
        raise ValueError("the array has fewer or more items than its header says")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)


class ArrayFile(ExitStack):
    """A one-dimensional .npy file, written piece by piece."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.length = 0
        self._path = path
        self._dtype = dtype
        with disk_errors(path):
            self._file = self.enter_context(path.open("wb"))
            self._file.write(bytes(HEADER_BYTES))

    def append(self, items: Array) -> None:
        with disk_errors(self._path):
            self._file.write(items.tobytes())
        self.length += len(items)

    def finish(self) -> Path:
        """Write the header, and return the path of the complete file."""
        with disk_errors(self._path):
            self._file.seek(0)
            self._file.write(array_header(self._dtype, self.length))
            self._file.close()
        return self._path


def write_archive(path: Path, files: Mapping[str, Path]) -> None:
    """Move .npy files into an archive, under these names and in their order."""
    with disk_errors(path), path.open("wb") as archive:
        entries = []
        for name, source in files.items():
            start = archive.tell()
            encoded = f"{name}{_SUFFIX}".encode()
            archive.write(bytes(_items_offset(start, encoded) - start))
            crc32 = 0
            with source.open("rb") as file:
                while data := file.read(_PIECE_BYTES):
                    crc32 = zlib.crc32(data, crc32)
                    archive.write(data)
                size_bytes = file.tell()
            source.unlink()
            end = archive.tell()
            archive.seek(start)
            archive.write(_local_header(start, encoded, crc32, size_bytes))
            archive.seek(end)
            entries.append(_directory_entry(start, encoded, crc32, size_bytes))
        archive.write(_directory(archive.tell(), entries))


def _items_offset(start: int, name: bytes) -> int:
    """Return the offset of a member's file, given the offset of the member's header."""
    offset = start + _LOCAL.size + len(name) + _LOCAL_SIZES.size + _PADDING.size
    return offset + -offset % _ALIGNMENT


def _local_header(start: int, name: bytes, crc32: int, size_bytes: int) -> bytes:
    sizes = _LOCAL_SIZES.pack(1, _LOCAL_SIZES.size - 4, size_bytes, size_bytes)
    end = start + _LOCAL.size + len(name) + len(sizes) + _PADDING.size
    padding = _items_offset(start, name) - end
    extra = sizes + _PADDING.pack(0, padding) + bytes(padding)
    head = (b"PK\x03\x04", _VERSION, 0, ZIP_STORED, 0, _FIRST_DAY, crc32, _LARGE, _LARGE)
    return _LOCAL.pack(*head, len(name), len(extra)) + name + extra


def _directory_entry(start: int, name: bytes, crc32: int, size_bytes: int) -> bytes:
    extra = _CENTRAL_SIZES.pack(1, _CENTRAL_SIZES.size - 4, size_bytes, size_bytes, start)
    head = (b"PK\x01\x02", _VERSION, _VERSION, 0, ZIP_STORED, 0, _FIRST_DAY, crc32)
    lengths = (_LARGE, _LARGE, len(name), len(extra), 0, 0, 0, 0, _LARGE)
    return _CENTRAL.pack(*head, *lengths) + name + extra


def _directory(start: int, entries: Sequence[bytes]) -> bytes:
    """Make the end of an archive, which begins at byte ``start``."""
    directory = b"".join(entries)
    count = len(entries)
    size_bytes = len(directory)
    end_64 = (b"PK\x06\x06", _END_64.size - 12, _VERSION, _VERSION, 0, 0, count, count)
    end = (b"PK\x05\x06", 0, 0, _SMALL, _SMALL, _LARGE, _LARGE, 0)
    return b"".join(
        [
            directory,
            _END_64.pack(*end_64, size_bytes, start),
            _LOCATOR.pack(b"PK\x06\x07", 0, start + size_bytes, 1),
            _END.pack(*end),
        ]
    )


class Member(NamedTuple):
    """The place of a .npy file in an archive, its length, and its CRC-32."""

    offset: int
    bytes: int
    crc32: int


def read_directory(tail: bytes, archive_bytes: int) -> dict[str, Member]:
    """Return the members of an archive by name, given its last bytes; ValueError if it is no
    archive.
    """
    before = archive_bytes - len(tail)
    try:
        with ZipFile(io.BytesIO(tail)) as archive:
            infos = archive.infolist()
    except (BadZipFile, NotImplementedError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"not an archive of arrays: {error}") from None
    members = {}
    for info in infos:
        offset = _items_offset(info.header_offset + before, info.filename.encode())
        if info.compress_type != ZIP_STORED or not 0 <= offset <= archive_bytes - info.file_size:
            raise ValueError(f"{info.filename} is not stored in the archive")
        members[info.filename.removesuffix(_SUFFIX)] = Member(offset, info.file_size, info.CRC)
    return members


class ArchiveReader:
    """An archive in a store, with its end read first. Damage raises `DamageError`."""

    def __init__(self, store: Store, file: StoredFile, names: Collection[str]) -> None:
        """Read the directory; a `DamageError` if a member with one of ``names`` is missing."""
        self.file = file
        self._store = store
        self._tail = b""
        self._tail_start = file.bytes
        self.keep_from(max(0, file.bytes - _TAIL_BYTES))
        try:
            self.members = read_directory(self._tail, file.bytes)
        except ValueError as error:
            raise self.invalid(str(error)) from None
        if not self.members.keys() >= set(names):
            raise self.invalid("an array is missing")

    def keep_from(self, start: int) -> None:
        """Keep the bytes from ``start`` to the end, so that they are not requested again."""
        if start < self._tail_start:
            self._tail = self.read(start, self._tail_start - start) + self._tail
            self._tail_start = start

    def read(self, offset: int, length: int) -> bytes:
        """Read a range, from the kept bytes if they contain it."""
        inside = offset - self._tail_start
        if inside >= 0 and inside + length <= len(self._tail):
            return self._tail[inside : inside + length]
        with self.errors():
            data = self._store.get(self.file.path, offset=offset, length=length)
        if len(data) < length:
            raise self.damage("damage.size", f"the file ends before byte {offset + length:,}")
        return data

    def array(self, name: str) -> Array:
        """Read a whole array, once more if it does not match its checksum."""
        return once_more(partial(self._array, name))

    def _array(self, name: str) -> Array:
        member = self.members[name]
        data = self.read(member.offset, member.bytes)
        if zlib.crc32(data) != member.crc32:
            raise self.damage("damage.digest", f"the {name} do not match their checksum")
        try:
            return read_array(data)
        except ValueError as error:
            raise self.invalid(f"{name}: {error}") from None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Report a missing or short file as damage."""
        try:
            with published_file_errors():
                yield
        except ObjectError as error:
            if error.code not in ("object.truncated", "object.missing"):
                raise
            missing = error.code == "object.missing"
            message = "the file is missing" if missing else "the file is too short"
            raise self.damage("damage.size", message) from None

    def invalid(self, message: str) -> DamageError:
        return self.damage("damage.manifest", message)

    def damage(self, code: str, message: str) -> DamageError:
        where = object_url(self._store.url, self.file.path)
        return DamageError(code, message, where=where, hint=MAKE_AGAIN)
