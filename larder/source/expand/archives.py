"""The index of an archive: the places of its members, and of members of archives in it.

Only headers are read. Distant headers take a request of a few kilobytes each; small members are
read together with their headers, up to a megabyte at a time. Archives within an archive are
independent of each other, so their headers are read in parallel.

`tarfile` parses the headers and ends silently at a missing header, so the end is checked here.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.budgets import map_ahead
from larder.errors import ObjectError
from larder.manifest.extents import in_object
from larder.samples.arrow_columns import Flags, column_flags
from larder.samples.naming import is_left_by_macos, path_fault
from larder.source.expand.containers import ContainerWriter, Indexes, container_name, identity
from larder.source.expand.expanded import Container, Expansion
from larder.source.selection import beginning
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable

Kind = Literal["file", "folder", "hard link", "symbolic link", "special file", "sparse file"]

Read = Callable[[int, int], bytes]
"""Reads a number of bytes from an offset; fewer only at the end of the object."""

_BLOCK = 512
_MOST_BYTES = 1 << 20
"""Maximum length of an extended header, as names are much shorter; also of pieces of padding."""

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
}
"""First bytes of compressed files whose names end like archives."""

_LABEL = b"V"
_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "folder",
    b"D": "folder",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
}

ARCHIVE = r"[^/]\.tar$"
"""End of the keys of archives, in upper or lower case."""

COMPRESSED = r"\.(?:gz|gzip|bz2|xz|zstd?|lz4|lzma|z|br|zip|sz|snappy)$"
COMPRESSED_ARCHIVE = rf"[^/]\.(?:tar{COMPRESSED}|(?:tgz|tbz2?|txz|tzst|taz|tlz)$)"

_ARCHIVE = re.compile(ARCHIVE, re.IGNORECASE)
_COMPRESSED_KEY = re.compile(COMPRESSED_ARCHIVE, re.IGNORECASE)


class TarMember(NamedTuple):
    """A member of an archive.

    Attributes:
        name: Name in the archive: bytes in any encoding.
        offset: Beginning of the content, in the object that was read.
    """

    name: bytes
    offset: int
    size_bytes: int
    kind: Kind


def tar_members(read: Read, start: int, stop: int, where: str) -> Iterator[TarMember]:
    """Yield the members of an archive, in its order, each as often as it occurs.

    The archive must end with a block of zeros, so that any truncation is noticed, and only zeros
    may follow; otherwise ``object.format`` is raised. ``start`` is 0, unless the archive is itself
    a member.
    """
    file = _Archive(read, start, stop, where)
    try:
        with tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape") as archive:  # type: ignore[arg-type]
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined] # else tarfile keeps all members
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
    """A range of an object as a file, with errors that name the object."""

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
        """Refuse an archive that does not end with zeros, at least a block of them."""
        left = self._size_bytes - position
        self.seek(position)
        if left < _BLOCK:
            raise self.damaged("the archive is cut off: it does not end with zeros, but", position)
        if self.read(_BLOCK).strip(b"\0"):
            raise self.damaged("no header", position)
        while self._at < self._size_bytes:
            data = self.read(_MOST_BYTES)
            if not data or data.strip(b"\0"):
                message = "something follows the archive's end, such as another archive,"
                raise self.damaged(message, position)

    def damaged(self, message: str, position: int) -> ObjectError:
        return damaged_archive(self.name, f"{message} at byte {position:,}")


def damaged_archive(where: str, message: str) -> ObjectError:
    hint = "replace it, exclude it with source.exclude, or set source.archives: keep"
    return ObjectError("object.format", message, where=where, hint=hint)


def is_archive(key: str) -> bool:
    return _ARCHIVE.search(key) is not None and not is_left_by_macos(key)


def is_compressed_archive(key: str) -> bool:
    """Whether a key belongs to a compressed archive, which cannot be read by ranges."""
    return _COMPRESSED_KEY.search(key) is not None


def member_name(raw: bytes) -> str:
    r"""Return a member's name without a leading ``./``; other bytes than UTF-8 become ``\xff``."""
    name = raw.decode("utf-8", "backslashreplace")
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def member_problem(member: TarMember, name: str) -> str | None:
    """Return the reason why a member, not a folder, cannot be an object, as a clause; else None."""
    try:
        member.name.decode()
    except UnicodeDecodeError:
        return "the name of the member is not UTF-8"
    if fault := path_fault(name):
        return f"the name of the member {fault}"
    if member.kind != "file":
        return f"the member is a {member.kind}"
    if is_compressed_archive(name):
        return "a compressed archive cannot be read by ranges"
    return None


NEAR_BYTES = 64 << 10
"""Maximum distance of headers that are read together, with the bytes between them."""

_WINDOWS = (2 << 10, 64 << 10, 1 << 20)
"""Bytes read at once, growing with each header that is near the previous header."""

_BATCH_ROWS = 4_096
_DEEPEST = 8
_IN_PROGRESS = 64

_Row = tuple[str, int, int, str | None]


class _Level(NamedTuple):
    """An archive: an object, or a member of another archive."""

    name: str
    start: int
    stop: int


def index_archive(
    source: Readable, archive: ObjectInfo, indexes: Indexes, path: Path, executor: Executor
) -> bool:
    """Write the index of an archive into a local file, with rows of `containers.INDEX`. Return
    whether the archive was read for lack of an index.

    The caller must not be a thread of ``executor``, which reads headers.
    """
    name = container_name("tar", *identity(archive))
    if indexes.fetch(name, path):
        return False
    with indexes.writer(name, path) as writer:
        _Indexing(source, archive, writer, executor).run()
    return True


@dataclass
class _Indexing:
    _source: Readable
    _archive: ObjectInfo
    _writer: ContainerWriter
    _executor: Executor
    _lock: Lock = field(default_factory=Lock)
    _ended: bool = False

    def run(self) -> None:
        try:
            self._run()
        finally:
            with self._lock:
                self._ended = True

    def _run(self) -> None:
        levels = [_Level("", 0, self._archive.size_bytes)]
        for _ in range(_DEEPEST):
            deeper: list[_Level] = []
            for inner in map_ahead(self._executor, self._read, levels, window=_IN_PROGRESS):
                deeper += inner
            levels = deeper
            if not levels:
                return
        message = f"more than {_DEEPEST} archives within each other"
        raise damaged_archive(self._where(levels[0]), message)

    def _where(self, level: _Level) -> str:
        url = object_url(self._source.url, self._archive.key)
        return f"{url}/{level.name}" if level.name else url

    def _read(self, level: _Level) -> list[_Level]:
        """Add the members of an archive to the index; return the archives in it."""
        headers = _Headers(self._source, self._archive, level.stop)
        prefix = f"{level.name}/" if level.name else ""
        where = self._where(level)
        inner: dict[str, _Level] = {}  # the last archive of a name counts

        def rows() -> Iterable[_Row]:
            for member in tar_members(headers.read, level.start, level.stop, where):
                if member.kind == "folder":
                    continue
                name = prefix + (member_key := member_name(member.name))
                problem = member_problem(member, member_key)
                if problem is None and is_archive(member_key):
                    stop = member.offset + member.size_bytes
                    inner[name] = _Level(name, member.offset, stop)
                else:
                    yield name, member.offset, member.size_bytes, problem

        stream = iter(rows())
        while batch := list(islice(stream, _BATCH_ROWS)):
            self._add(batch)
        return list(inner.values())

    def _add(self, rows: list[_Row]) -> None:
        names, offsets, sizes, problems = zip(*rows, strict=True)
        with self._lock:
            if self._ended:  # another thread has failed, and there is no index to write
                return
            self._writer.add_ranges(
                pa.array(names, pa.string()),
                pa.array(offsets, pa.int64()),
                pa.array(sizes, pa.int64()),
                problems=pa.array(problems, pa.string()),
            )


class _Headers:
    """Reads headers in order, up to ``stop``, and keeps the bytes of the last request."""

    def __init__(self, source: Readable, archive: ObjectInfo, stop: int) -> None:
        self._source = source
        self._archive = archive
        self._stop = stop
        self._start = self._offset = 0
        self._data = b""
        self._window = 0

    def read(self, offset: int, length: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + length > len(self._data):
            near = bool(self._data) and 0 <= offset - self._offset <= NEAR_BYTES
            self._window = min(self._window + 1, len(_WINDOWS) - 1) if near else 0
            self._data = self._get(offset, max(length, _WINDOWS[self._window]))
            self._start, at = offset, 0
        self._offset = offset
        return self._data[at : at + length]

    def _get(self, offset: int, length: int) -> bytes:
        archive = self._archive
        wanted = min(length, self._stop - offset)
        if wanted <= 0:
            return b""
        return self._source.get(
            archive.key, offset=offset, length=wanted, if_match=archive.etag or None
        )


_ANY = f"(?i)(?:{ARCHIVE}|{COMPRESSED_ARCHIVE})"
_TAR = f"(?i)(?:{ARCHIVE})"


def _matching(keys: pa.Array, pattern: str) -> Flags:
    return column_flags(pc.match_substring_regex(keys, pattern))


def archives_to_list(include: Sequence[str]) -> Callable[[pa.Array], Flags]:
    """Return a function that flags keys of archives whose members a glob may match."""
    starts = [beginning(glob) for glob in include]
    within = "|".join(map(re.escape, starts))
    # A glob that begins with a/b.tar/c may match members of a/b.tar, and of an archive a.
    above = sorted({start[:at] for start in starts for at, each in enumerate(start) if each == "/"})

    def may_have_members(keys: pa.Array) -> Flags:
        folders = pc.binary_join_element_wise(keys, "", "/")
        may_match = _matching(folders, f"^(?:{within})")
        may_match |= column_flags(pc.is_in(keys, pa.array(above, pa.string())))
        return may_match & _matching(keys, _TAR)

    return may_have_members


def archive_expansion(source: Readable, indexes: Indexes) -> Expansion:
    """Return the expansion of archives, which refuses compressed archives."""

    def indexed(info: ObjectInfo, path: Path, executor: Executor) -> Container:
        read = index_archive(source, info, indexes, path, executor)
        end = in_object(info.key, info.etag)
        return Container(info, end, last_counts=True, filtered=True, read=read)

    return Expansion(lambda keys: _matching(keys, _ANY), indexed, _refused)


def _refused(key: str) -> str | None:
    if is_compressed_archive(key):
        return "a compressed archive cannot be read by ranges: decompress it, or exclude it"
    return None
