"""The members of a tar archive, from its headers alone, and their names as keys.

Pure: the caller reads the bytes.

What is read: ustar, PAX (POSIX.1-2001) and GNU headers, and those of Unix V7. The references are
IEEE Std 1003.1 (``pax``, "Interchange Formats") and GNU tar's manual ("Basic Tar Format").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple
from zlib import adler32

from larder.errors import ObjectError

Kind = Literal["file", "folder", "hard link", "symbolic link", "special file", "sparse file"]

Read = Callable[[int, int], bytes]
"""Reads a number of bytes from an offset; fewer only at the end of the object."""

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_MOST_HEADER_BYTES = 1 << 20
"""The longest extended header that is read: names are much shorter."""

_MOST_PADDING_BYTES = 1 << 20
"""The longest end of an archive: blocks of zeros, up to a multiple of the size of a record."""

_RECORD = re.compile(rb"([1-9][0-9]{0,9}) ")
_OCTAL = re.compile(rb" *([0-7]*) *(?:\0.*)?", re.DOTALL)

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
}
"""What files begin with that are called archives and are compressed."""

_KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hard link",
    b"2": "symbolic link",
    b"5": "folder",
    b"D": "folder",
    b"S": "sparse file",
}
_WITHOUT_DATA = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
_LONG_NAME, _LONG_LINK = b"L", b"K"
_LOCAL, _GLOBAL = frozenset({b"x", b"X"}), b"g"
_LABEL = b"V"


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


class _Headers(NamedTuple):
    """What the extended headers before a member say of it."""

    records: dict[bytes, bytes]
    name: bytes | None


def tar_members(read: Read, start: int, stop: int, where: str) -> Iterator[TarMember]:
    """The members of an archive, in its order, each as often as it occurs.

    The archive has to end with a block of zeros, so that one that was cut off is noticed wherever
    that was, and nothing may follow but more of them; otherwise it is ``object.format``. ``start``
    is 0, unless the archive is itself a member.
    """
    archive = _Archive(read, start, stop, where)
    everywhere: dict[bytes, bytes] = {}
    position = start
    headers = _Headers({}, None)
    while (block := archive.block(position)) != _ZEROS:
        flag, size = block[156:157], archive.size(block, position)
        data = position + _BLOCK
        if flag in _LOCAL or flag == _GLOBAL:
            records = archive.records(data, size)
            if flag == _GLOBAL:
                everywhere.update(records)
            else:
                headers = headers._replace(records={**headers.records, **records})
            position = archive.after(data, size)
        elif flag == _LONG_NAME:
            name = archive.header(data, size).partition(b"\0")[0]
            headers = headers._replace(name=name)
            position = archive.after(data, size)
        elif flag == _LONG_LINK:
            position = archive.after(data, size)
        else:
            records = {**everywhere, **headers.records}
            if flag == b"S":
                data = archive.after_sparse_map(block, data)
            size = archive.given_size(records, size, position)
            real = records.get(b"GNU.sparse.name") or records.get(b"path")
            name = real or headers.name or _name(block)
            kind = _kind(flag, name, records)
            if flag in _WITHOUT_DATA:
                size = 0
            position = archive.after(data, size, name)
            headers = _Headers({}, None)
            if flag != _LABEL:
                yield TarMember(name, data, size, kind)
    archive.check_end(position)


def damaged_archive(where: str, message: str) -> ObjectError:
    hint = "replace it, exclude it with source.exclude, or set source.archives: keep"
    return ObjectError("object.format", message, where=where, hint=hint)


def _kind(flag: bytes, name: bytes, records: dict[bytes, bytes]) -> Kind:
    if any(key.startswith(b"GNU.sparse.") for key in records):
        return "sparse file"
    if flag == b"\0" and name.endswith(b"/"):  # as V7 and early GNU tar wrote folders
        return "folder"
    return _KINDS.get(flag, "special file")


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":  # elsewhere, GNU tar has times there
        prefix = block[345:500].partition(b"\0")[0]
        if prefix:
            return prefix + b"/" + name
    return name


class _Archive:
    """Reads headers; every error names the archive, and the byte of it."""

    def __init__(self, read: Read, start: int, stop: int, where: str) -> None:
        self._read = read
        self._start = start
        self._stop = stop
        self._where = where

    def error(self, message: str, position: int) -> ObjectError:
        return damaged_archive(self._where, f"{message} at byte {position - self._start:,}")

    def block(self, position: int) -> bytes:
        """The header at a position, of which the checksum is right, or zeros."""
        if position >= self._stop:
            message = "the archive is cut off: it does not end with zeros, but"
            if position == self._start:
                message = "an archive cannot be empty: it ends"
            raise self.error(message, position)
        left = self._stop - position
        block = self._bytes(position, min(_BLOCK, left))
        if block == _ZEROS or (left >= _BLOCK and _is_header(block)):
            return block
        if position == self._start:
            for magic, program in _COMPRESSED.items():
                if block.startswith(magic):
                    message = f"not a tar archive, but compressed with {program}: decompress it;"
                    raise self.error(f"{message} no header", position)
        if left < _BLOCK:
            raise self.error("the archive is cut off", position)
        what = "not a tar archive: no header" if position == self._start else "no header"
        raise self.error(what, position)

    def size(self, block: bytes, position: int) -> int:
        """The size field of a header: octal digits or, for large ones, a binary number."""
        field = block[124:136]
        if field[0] & 0x80:
            size = int.from_bytes(field, "big", signed=False) - (0x80 << 88)
            if size < 0 or size >> 63:
                raise self.error("an invalid size in the header", position)
            return size
        found = _OCTAL.fullmatch(field)
        if found is None:
            raise self.error("an invalid size in the header", position)
        return int(found[1] or b"0", 8)

    def given_size(self, records: dict[bytes, bytes], size: int, position: int) -> int:
        """The size of a member, which a PAX record may replace."""
        given = records.get(b"size")
        if not given:
            return size
        if not given.isdigit() or len(given) > 18:
            raise self.error("an invalid size in the PAX header", position)
        return int(given)

    def header(self, position: int, size: int) -> bytes:
        if size > _MOST_HEADER_BYTES:
            raise self.error(f"an extended header of {size:,} bytes", position)
        return self._bytes(position, size)

    def records(self, position: int, size: int) -> dict[bytes, bytes]:
        data = self.header(position, size)
        found: dict[bytes, bytes] = {}
        at = 0
        while at < len(data):
            length = _RECORD.match(data, at)
            end = at + int(length[1]) if length else 0
            key, equals, value = data[length.end() if length else at : end - 1].partition(b"=")
            if length is None or end > len(data) or data[end - 1 : end] != b"\n" or not equals:
                raise self.error("an invalid PAX header", position)
            found[key] = value
            at = end
        return found

    def after_sparse_map(self, block: bytes, position: int) -> int:
        """Where the content of an old GNU sparse file begins: after the rest of its map."""
        more = block[482]
        while more:
            more = self._bytes(position, _BLOCK)[504]
            position += _BLOCK
        return position

    def after(self, position: int, size: int, name: bytes = b"") -> int:
        """Where the header after some content is."""
        if position + size > self._stop:
            shown = f" of {name.decode('utf-8', 'backslashreplace')}" if name else ""
            message = f"the archive is cut off: the {size:,} bytes{shown} begin"
            raise self.error(message, position)
        return position + size + -size % _BLOCK

    def check_end(self, position: int) -> None:
        """Only zeros may follow."""
        left = self._stop - position
        if left > _MOST_PADDING_BYTES or self._bytes(position, left).strip(b"\0"):
            message = "something follows the archive's end, such as another archive,"
            raise self.error(message, position)

    def _bytes(self, position: int, length: int) -> bytes:
        data = self._read(position, length) if position + length <= self._stop else b""
        if len(data) < length:
            raise self.error("the archive is cut off", position)
        return data


def _is_header(block: bytes) -> bool:
    """Whether the checksum is right: the sum of all bytes, with blanks in its own field."""
    found = _OCTAL.fullmatch(block[148:156])
    if found is None or not found[1]:
        return False
    wanted = int(found[1], 8)
    blanked = b"".join((block[:148], b"        ", block[156:]))
    # The lower half of adler32 is one plus the sum modulo 65,521: ten times as fast as sum().
    if (adler32(blanked) & 0xFFFF) == (wanted + 1) % 65_521:
        return True
    # Some old programs added bytes as signed numbers.
    return sum(blanked) - 256 * sum(byte >= 0x80 for byte in blanked) == wanted


ARCHIVE = r"[^/]\.tar$"
"""What the keys of archives end in, in upper or lower case."""

COMPRESSED_ARCHIVE = r"[^/]\.(?:tar\.(?:gz|bz2|xz|zst|lz4|lzma|z|br)|tgz|tbz2?|txz|tzst|taz|tlz)$"

_ARCHIVE = re.compile(ARCHIVE, re.IGNORECASE)
_COMPRESSED_KEY = re.compile(COMPRESSED_ARCHIVE, re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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
    if _CONTROL.search(name):
        return "the name of the member contains a control character"
    if name.startswith("/"):
        return "the name of the member begins with /"
    segments = name.split("/")
    if not segments[-1]:
        return "the name of the member is empty or ends in /"
    for segment, noun in (("", "an empty segment"), (".", "a segment ."), ("..", "a segment ..")):
        if segment in segments:
            return f"the name of the member contains {noun}"
    return None


def _bad_kind(member: TarMember) -> str | None:
    if member.kind != "file":
        return f"the member is a {member.kind}"
    if is_compressed_archive(member.name.decode()):
        return "a compressed archive cannot be read by ranges"
    return None
