"""Reads one cache file: records by number, one or a batch at a time.

LMDB refuses to open a file twice in a process, under any name. So the readers of a file share one
`_SharedFile`, with one read transaction for all threads: nothing in it is locked, the file does not
change, and nobody removes it. A forked child reads on with it. It must never close it: LMDB would
wait for reads of threads that the child does not have.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import lmdb
import numpy as np

from larder.cache.group import GROUPS_KEY, group_bounds, group_ends, group_key
from larder.cache.record import (
    SCHEMA_KEY,
    Array,
    Buffer,
    CacheFileFacts,
    Codec,
    Column,
    ContentDigest,
)
from larder.cache.schema import RecordSchema, check_room
from larder.disk import disk_errors, limit_error, open_regular, open_shared, sha256_file
from larder.errors import DamageError, FatalError
from larder.forking import leave_to_parent

_LOCK = threading.RLock()  # a reader may be collected while another is opened
_OPEN: dict[tuple[int, int], _SharedFile] = {}

# The magic number and version of LMDB 0.9's file format, on its first page.
_MAGIC = bytes.fromhex("dec0efbe01000000")
_MAGIC_OFFSET = 16

_GROUPS: Final = 8_192
"""So many groups of a file are looked up once; the place of one takes 500 bytes."""

_ERRORS: Final = (DamageError, lmdb.Error)


class _SharedFile:
    """One open file; created by `acquire`."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.users = 0
        self.pid = os.getpid()
        with disk_errors(path, reading=True):
            self.handle = open_shared(path)
        try:
            self.environment: Any = _open(path)
        except BaseException:
            os.close(self.handle)
            raise
        self.begin()

    def begin(self) -> None:
        """Begin a transaction, the first one or after an error, which ends one."""
        self.transaction: Any = self.environment.begin(buffers=True)


def acquire(path: Path) -> _SharedFile:
    """The file at ``path``, opened if this process does not have it open yet."""
    with disk_errors(path, reading=True):
        status = path.stat()
    identity = status.st_dev, status.st_ino
    with _LOCK:
        if identity not in _OPEN:
            _OPEN[identity] = _SharedFile(path, identity)
        file = _OPEN[identity]
        file.users += 1
        return file


def release(file: _SharedFile) -> None:
    """Release what `acquire` returned; the last release closes the file, but for its parent's."""
    with _LOCK:
        file.users -= 1
        if not file.users and file.pid == os.getpid():
            del _OPEN[file.identity]
            file.environment.close()
            os.close(file.handle)


def _forked() -> None:
    leave_to_parent(list(_OPEN.values()))
    _LOCK.release()


# A fork waits while a thread opens or closes a file, so that a child finds no partial state.
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_forked)


def _open(path: Path) -> Any:
    with disk_errors(path, reading=True), open(path, "rb", opener=open_regular) as file:
        file.seek(_MAGIC_OFFSET)
        magic = file.read(len(_MAGIC))
    try:
        if magic == _MAGIC:
            return lmdb.open(str(path), subdir=False, readonly=True, lock=False)
    except lmdb.Error as error:
        if limit := limit_error(error, str(path)):
            raise limit from error
    raise FatalError(
        "cache.format",
        "not an LMDB 0.9 file for this machine",
        where=str(path),
        hint="build the cache again, or verify it",
    )


def open_file(
    path: Path, facts: CacheFileFacts, *, verify: bool = False, check_records: bool = True
) -> CacheFileReader:
    """Open a cache file on a local disk, which must not change while it is open.

    With ``verify``, the whole file is read first and its sha256 compared. Without it, damage to a
    record is found when it is read (``check_records`` compares CRC-32Cs), but damage to LMDB's own
    pages may kill the process.

    The length is checked before LMDB maps the file, because reading beyond the end of a truncated
    file kills the process.

    Raises:
        DamageError: ``damage.size``, ``damage.digest``, ``damage.record``.
        FatalError: ``cache.format``: another format, or another release line of LMDB.
        ConfigError: ``config.path``: the file cannot be read.
    """
    with disk_errors(path, reading=True):
        size_bytes = path.stat().st_size
        facts.compare(size_bytes, None, str(path))
        if verify:
            facts.compare(size_bytes, sha256_file(path), str(path))
    return CacheFileReader(path, facts, check_records=check_records)


class CacheFileReader:
    """The records of one cache file; created by `open_file`.

    It may be used by many threads and after a fork. It is pickled as the path and the facts.
    """

    def __init__(self, path: Path, facts: CacheFileFacts, *, check_records: bool = True) -> None:
        self.path = path
        self._facts = facts
        self._check_records = check_records
        self._file = acquire(path)
        self.close = weakref.finalize(self, release, self._file)
        self.schema, self._ends = self._read_schema()
        self._starts = np.concatenate([[0], self._ends[:-1]])
        self._codec = Codec(self.schema, facts.place)
        sizes = self._ends, self._codec.record_bytes
        self._group = lru_cache(_GROUPS)(partial(_group, self._file, *sizes))

    def __len__(self) -> int:
        return self._facts.records

    def __getitem__(self, index: int) -> dict[str, Array]:
        """The arrays of one record by field, without the fields that the record does not have."""
        records = self._facts.records
        if not -records <= index < records:
            raise IndexError(f"record {index} of {records}")
        number = index % records
        try:
            record = self._record(number)
            if self._check_records:
                self._codec.check(record, number)
            return self._codec.decode(record)
        except _ERRORS as error:
            raise self._named(error, number) from error

    def read_into(
        self,
        columns: Mapping[str, Column],
        rows: Sequence[int] | Array,
        indices: Sequence[int] | Array,
    ) -> None:
        """Read several records, which may be repeated, into existing columns, such as those of a
        shared buffer: into ``rows`` of what `larder.cache.record.empty_columns` makes.

        Raises:
            IndexError: The record does not exist.
            DamageError: ``damage.record``.
        """
        assert self.close.alive, "the cache file is closed"
        records, numbers = self._facts.records, np.asarray(indices, np.int64)
        outside = (numbers < -records) | (numbers >= records)
        if outside.any():
            raise IndexError(f"record {numbers[outside][0]} of {records}")
        numbers = np.where(numbers < 0, numbers + records, numbers)
        groups = np.searchsorted(self._ends, numbers, side="right")
        places = numbers - self._starts[groups]
        read = self._codec.reader(columns, check=self._check_records)
        group_of, number = self._group, -1
        each = (column.tolist() for column in (numbers, groups, places))
        rows = rows.tolist() if isinstance(rows, np.ndarray) else rows
        try:
            for row, number, group, place in zip(rows, *each, strict=True):
                value, bounds = group_of(group)
                read(value, bounds[place], bounds[place + 1], number, row)
        except _ERRORS as error:
            raise self._named(error, number) from error

    def verify(self) -> None:
        """Read and check every record, and compare the content digest with the published one."""
        digest, number = ContentDigest(self.schema), -1
        try:
            for number in range(len(self)):
                record = self._record(number)
                self._codec.check(record, number)
                digest.add(record)
        except _ERRORS as error:
            raise self._named(error, number) from error
        if digest.hexdigest() != self._facts.digest:
            message = f"the content digest is {digest.hexdigest()}, not {self._facts.digest}"
            raise DamageError("damage.digest", message, where=str(self.path))

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return (self[number] for number in range(len(self)))

    def __enter__(self) -> CacheFileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.path, self._facts, self._check_records)

    def _record(self, number: int) -> Buffer:
        assert self.close.alive, "the cache file is closed"
        group = int(self._ends.searchsorted(number, "right"))
        value, bounds = self._group(group)
        place = number - int(self._starts[group])
        return value[bounds[place] : bounds[place + 1]]

    def _named(self, error: Exception, number: int) -> DamageError:
        """The error, which says what record it is about."""
        where = f"{self.path}, record {number}"
        if isinstance(error, DamageError):
            return DamageError(error.code, error.message, where=where)
        self._file.begin()
        return DamageError("damage.record", f"LMDB: {error}", where=where)

    def _read_schema(self) -> tuple[RecordSchema, Array]:
        """With the numbers of records up to the end of each group."""
        facts, where, transaction = self._facts, str(self.path), self._file.transaction
        try:
            document = bytes(transaction.get(SCHEMA_KEY, b""))
            schema = RecordSchema.parse(document, where, place=facts.place, digest=facts.digest)
            ends = group_ends(transaction.get(GROUPS_KEY, b""), facts.place)
        except lmdb.Error as error:
            self._file.begin()
            raise DamageError("damage.record", f"LMDB: {error}", where=where) from error
        except DamageError as error:
            raise DamageError(error.code, error.message, where=where) from None
        records = int(ends[-1]) if len(ends) else 0
        if records != facts.records:
            message = f"the file has {records} records instead of {facts.records}"
            raise DamageError("damage.record", message, where=where)
        try:
            check_room(schema.fields, records, facts.bytes)
        except ValueError as error:
            raise DamageError("damage.record", str(error), where=where) from None
        return schema, ends


def _group(
    file: _SharedFile, ends: Array, record_bytes: int | None, number: int
) -> tuple[memoryview, Sequence[int]]:
    """The value of a group, and the bounds of its records."""
    value = file.transaction.get(group_key(number))
    if value is None:
        raise DamageError("damage.record", "its group is missing")
    count = int(ends[number]) - (int(ends[number - 1]) if number else 0)
    return value, group_bounds(value, count, record_bytes)


def _reopen(path: Path, facts: CacheFileFacts, check_records: bool) -> CacheFileReader:
    return open_file(path, facts, check_records=check_records)
