"""Read one cache file, downloaded from a bucket first: records by number, one or a batch at a time.

LMDB refuses to open a file twice in a process, under any name. So the readers of a file share one
`_SharedFile`, with one read transaction for all threads: the transaction locks nothing, and no
process changes or removes the file. A forked child continues with the same `_SharedFile`. The child
must never close it: LMDB would wait for reads of threads that the child does not have.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import numpy as np

from larder.cache.cache_record import (
    SCHEMA_KEY,
    Array,
    Buffer,
    CacheFileFacts,
    Codec,
    Column,
    ContentDigest,
    damage,
)
from larder.cache.group import GROUPS_KEY, Groups, group_ends, group_key
from larder.cache.schema import RecordSchema, check_room
from larder.disk import disk_errors, limit_error, open_regular, open_shared, sha256_file
from larder.errors import DamageError, FatalError
from larder.forking import leave_to_parent
from larder.store import local_path
from larder.store.base import Store
from larder.store.download import download_once

_LOCK = threading.RLock()  # a reader may be collected while another is opened
_OPEN: dict[tuple[int, int], _SharedFile] = {}

# The magic number and version of LMDB 0.9's file format, on its first page.
_MAGIC = bytes.fromhex("dec0efbe01000000")
_MAGIC_OFFSET = 16


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
        """Begin a transaction; an error ends it."""
        self.transaction: Any = self.environment.begin(buffers=True)


def acquire(path: Path) -> _SharedFile:
    """Return the file at ``path``, opened if this process does not have it open yet."""
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
    """Release a file of `acquire`; the last release closes it, unless a parent opened it."""
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

    With ``verify``, the whole file is read first and its sha256 compared. Otherwise damage to a
    record is found when the record is read (``check_records`` compares CRC-32Cs), but damage to
    LMDB's own pages may kill the process. So does reading beyond the end of a truncated file: the
    length is checked before LMDB maps it.
    """
    with disk_errors(path, reading=True):
        size_bytes = path.stat().st_size
        facts.compare(size_bytes, None, str(path))
        if verify:
            facts.compare(size_bytes, sha256_file(path), str(path))
    return CacheFileReader(path, facts, check_records=check_records)


class CacheFileReader:
    """Records of one cache file; created by `open_file`.

    A reader may be used by many threads and after a fork. A pickle has the path and the facts.
    """

    def __init__(self, path: Path, facts: CacheFileFacts, *, check_records: bool = True) -> None:
        self.path = path
        self._facts = facts
        self._check_records = check_records
        self._file = acquire(path)
        self.close = weakref.finalize(self, release, self._file)
        self.schema, ends, first = self._read_schema()
        self._codec = Codec(self.schema, facts.place)
        # LMDB does not tell the beginning of its map, so some of these bytes are outside the map.
        memory, look_up = _bytes_at(first, 2 * facts.bytes), partial(_look_up, self._file, first)
        self._groups = Groups(ends, memory, look_up, self._codec.record_bytes)

    def __len__(self) -> int:
        return self._facts.records

    def __getitem__(self, index: int) -> dict[str, Array]:
        """Return the arrays of one record by field, without fields that the record lacks."""
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        with self._reading():
            record = self._groups.record(index)
            if self._check_records:
                self._codec.check(record, index)
            return self._codec.decode(record, index)

    def read_into(
        self,
        columns: Mapping[str, Column],
        rows: Sequence[int] | Array,
        indices: Sequence[int] | Array,
    ) -> None:
        """Read records, which may repeat, into ``rows`` of columns from `empty_columns`."""
        numbers = np.asarray(indices, np.int64)
        outside = (numbers < 0) | (numbers >= len(self))
        if outside.any():
            raise IndexError(f"record {numbers[outside][0]} of {len(self)}")
        with self._reading():
            places = self._groups.places(numbers)
            self._codec.read_rows(columns, np.asarray(rows), places, check=self._check_records)

    def verify(self) -> None:
        """Read and check every record, and compare the content digest with the published one."""
        digest = ContentDigest(self.schema)
        with self._reading():
            for number in range(len(self)):
                record = self._groups.record(number)
                self._codec.check(record, number)
                digest.add(record)
        if digest.hexdigest() != self._facts.digest:
            message = f"the content digest is {digest.hexdigest()}, not {self._facts.digest}"
            raise DamageError("damage.digest", message, where=str(self.path))

    def __enter__(self) -> CacheFileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        reopen = partial(open_file, check_records=self._check_records)
        return reopen, (self.path, self._facts)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep the file open, also if another thread closes it, and name it in errors."""
        with _LOCK:
            if not self.close.alive:
                raise ValueError(f"the cache file is closed: {self.path}")
            self._file.users += 1
        try:
            yield
        except DamageError as error:
            error.where = f"{self.path}, {error.where}"
            raise
        finally:
            release(self._file)

    def _read_schema(self) -> tuple[RecordSchema, Array, int]:
        """Return the schema, the record counts up to each group's end, and the least address."""
        facts, where, transaction = self._facts, str(self.path), self._file.transaction
        try:
            document = bytes(transaction.get(SCHEMA_KEY, b""))
            schema = RecordSchema.parse(document, where, place=facts.place, digest=facts.digest)
            groups = transaction.get(GROUPS_KEY, b"")
            ends = group_ends(groups, facts.place)
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
        return schema, ends, _address(groups) - facts.bytes


def _look_up(file: _SharedFile, first: int, group: int, number: int) -> tuple[int, int]:
    """Return the place of a group's value, counted from an address, and its length."""
    try:
        value = file.transaction.get(group_key(group))
    except lmdb.Error as error:
        file.begin()
        raise damage(f"LMDB: {error}", number) from error
    if value is None:
        raise damage("its group is missing", number)
    return _address(value) - first, len(value)


def _address(value: Buffer) -> int:
    return int(np.frombuffer(value, np.uint8).ctypes.data)


def _bytes_at(address: int, size_bytes: int) -> memoryview:
    """View memory from an address on; the view does not keep the memory alive."""
    place = {"data": (address, True), "shape": (size_bytes,), "typestr": "|u1", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=place)).data


def fetch_file(store: Store, key: str, facts: CacheFileFacts, directory: Path) -> Path:
    """Return the local path of a cache file; download it unless the store is a directory.

    A downloaded file is named by its sha256, so no version downloads it again.
    """
    if store.features.local_path:
        return local_path(store, key)
    path = directory / f"{facts.sha256}.mdb"
    download_once(store, key, path, facts.bytes, facts.sha256)
    return path
