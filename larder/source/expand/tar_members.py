"""The members of a tar archive, from its headers alone, and their names as keys.

Headers are parsed by `tarfile`, which ends without a word where it finds none: so the end is looked
at here. The caller reads the bytes.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from larder.errors import ObjectError
from larder.samples.naming import path_fault

Kind = Literal["file", "folder", "hard link", "symbolic link", "special file", "sparse file"]

Read = Callable[[int, int], bytes]
"""Reads a number of bytes from an offset; fewer only at the end of the object."""

_BLOCK = 512
_MOST_BYTES = 1 << 20
"""The longest extended header, as names are much shorter, and the longest padding at the end."""

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
}
"""What files begin with that are called archives and are compressed."""

_LABEL = b"V"
_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "folder",
    b"D": "folder",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
}

ARCHIVE = r"[^/]\.tar$"
"""What the keys of archives end in, in upper or lower case."""

COMPRESSED_ARCHIVE = r"[^/]\.(?:tar\.(?:gz|bz2|xz|zst|lz4|lzma|z|br)|tgz|tbz2?|txz|tzst|taz|tlz)$"

_ARCHIVE = re.compile(ARCHIVE, re.IGNORECASE)
_COMPRESSED_KEY = re.compile(COMPRESSED_ARCHIVE, re.IGNORECASE)


class TarMember(NamedTuple):
    """A member of an archive.

    Attributes:
        name: As in the archive: bytes in any encoding.
        offset: Where its content begins, in the object that was read.
    """

    name: bytes
    offset: int
    size_bytes: int
    kind: Kind


def tar_members(read: Read, start: int, stop: int, where: str) -> Iterator[TarMember]:
    """The members of an archive, in its order, each as often as it occurs.

    The archive has to end with a block of zeros, so that one that was cut off is noticed wherever
    that was, and nothing may follow but more of them; otherwise it is ``object.format``. ``start``
    is 0, unless the archive is itself a member.
    """
    file = _Archive(read, start, stop, where)
    try:
        with tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape") as archive:  # type: ignore[arg-type]
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined] # else it keeps all of them
                kind = _kind(member)
                size = member.size if kind == "file" else 0
                if not 0 <= size <= stop - start - member.offset_data:
                    message = f"the archive is cut off: the {size:,} bytes of {member.name!r} begin"
                    raise file.damaged(message, member.offset_data)
                if member.type != _LABEL:
                    name = member.name.encode("utf-8", "surrogateescape")
                    yield TarMember(name, start + member.offset_data, size, kind)
            file.check_end(archive.offset)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise file.damaged(f"not a tar archive that can be read, {error},", file.tell()) from None


def _kind(member: tarfile.TarInfo) -> Kind:
    if member.issparse():
        return "sparse file"
    return "file" if member.isreg() else _KINDS.get(member.type, "special file")


class _Archive:
    """A range of an object as a file, and the errors that name it."""

    def __init__(self, read: Read, start: int, stop: int, where: str) -> None:
        self.name = where
        self.mode = "rb"
        self._read = read
        self._start = start
        self._size_bytes = stop - start
        self._at = 0

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        self._at = position

    def read(self, size: int) -> bytes:
        if size > _MOST_BYTES:
            raise self.damaged(f"an extended header of {size:,} bytes", self._at)
        wanted = max(0, min(size, self._size_bytes - self._at))
        data = self._read(self._start + self._at, wanted) if wanted else b""
        if not self._at:
            for magic, program in _COMPRESSED.items():
                if data.startswith(magic):
                    message = f"not a tar archive, but compressed with {program}: decompress it"
                    raise damaged_archive(self.name, message)
        self._at += len(data)
        return data

    def check_end(self, position: int) -> None:
        """Only zeros may follow, and at least a block of them."""
        left = self._size_bytes - position
        self.seek(position)
        if left < _BLOCK:
            raise self.damaged("the archive is cut off: it does not end with zeros, but", position)
        if self.read(_BLOCK).strip(b"\0"):
            raise self.damaged("no header", position)
        if left > _MOST_BYTES or self.read(left - _BLOCK).strip(b"\0"):
            message = "something follows the archive's end, such as another archive,"
            raise self.damaged(message, position)

    def damaged(self, message: str, position: int) -> ObjectError:
        return damaged_archive(self.name, f"{message} at byte {position:,}")


def damaged_archive(where: str, message: str) -> ObjectError:
    hint = "replace it, exclude it with source.exclude, or set source.archives: keep"
    return ObjectError("object.format", message, where=where, hint=hint)


def is_archive(key: str) -> bool:
    """Whether a key is that of a tar archive: by its name, which ends in ``.tar``."""
    return _ARCHIVE.search(key) is not None


def is_compressed_archive(key: str) -> bool:
    """Whether a key is that of an archive that cannot be read by ranges."""
    return _COMPRESSED_KEY.search(key) is not None


def member_name(raw: bytes) -> str:
    r"""A member's name, without ``./`` before it; what is not UTF-8 becomes ``\xff``."""
    name = raw.decode("utf-8", "backslashreplace")
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def member_problem(member: TarMember, name: str) -> str | None:
    """Why a member, not a folder, cannot be listed as an object, as a clause; None if it can."""
    return _bad_name(member.name, name) or _bad_kind(member)


def _bad_name(raw: bytes, name: str) -> str | None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "the name of the member is not UTF-8"
    fault = path_fault(name)
    return f"the name of the member {fault}" if fault else None


def _bad_kind(member: TarMember) -> str | None:
    if member.kind != "file":
        return f"the member is a {member.kind}"
    if is_compressed_archive(member.name.decode()):
        return "a compressed archive cannot be read by ranges"
    return None
