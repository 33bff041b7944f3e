"""Builds one part of a cache: an LMDB file of records in order.

The same records give the same bytes in every process of a machine: the file depends on the page
size, which the machine sets, so the content has a digest of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from larder.cache.layout import SCHEMA_KEY, CacheFileFacts, record_key
from larder.cache.record import Codec, ContentDigest, Value, checksum
from larder.cache.schema import Schema
from larder.cache.scratch import disk_errors, draft
from larder.errors import FatalError, StoreError
from larder.units import format_bytes, format_count

__all__ = ["build_file"]

TRANSACTION_BYTES: Final = 64_000_000
MAP_BYTES: Final = 1 << 30

_LARGEST_RECORD_BYTES = (1 << 32) - 1


def build_file(
    records: Iterable[Mapping[str, Value]],
    schema: Schema,
    path: Path,
    *,
    limit_bytes: int | None,
    reserve_bytes: int = 0,
    transaction_bytes: int = TRANSACTION_BYTES,
    map_bytes: int = MAP_BYTES,
    on_record: Callable[[int, int, int], None] | None = None,
) -> CacheFileFacts:
    """Write records to an LMDB file that appears under ``path`` when it is whole and durable.

    Memory is about twice ``transaction_bytes``. Killed at any time, nothing is at ``path`` that
    was not there before.

    Args:
        records: Their values, in order; see `Codec.encode`.
        schema: Their fields.
        path: The file; its directory is made if needed, and a file that is there is replaced.
        limit_bytes: The budget of the file; None sets none. A dataset that does not end stops here,
            not at the end of the disk.
        reserve_bytes: What the disk must have left. It is asked after every transaction, so that
            files that are built at the same time share what is free.
        transaction_bytes: Bytes of records between two commits.
        map_bytes: The first size of the memory map; it doubles when it is full. Part of the
            file's bytes, so leave it as it is.
        on_record: Called for each record with its id, length in bytes and CRC-32C.

    Raises:
        FatalError: ``run.endless``: the budget is passed; ``cache.schema``: a record that does
            not fit the schema.
        StoreError: ``store.full``: no space is left.
        ConfigError: ``config.path``: the directory cannot be written.
    """
    codec, digest = Codec(schema), ContentDigest(schema)
    with draft(path) as file:
        with _Writer(
            file.path, path, limit_bytes, reserve_bytes, transaction_bytes, map_bytes
        ) as writer:
            count = 0
            for values in records:
                record = codec.encode(values)
                writer.add(record_key(count), record)
                digest.add(record)
                if on_record is not None:
                    on_record(count, len(record), checksum(record))
                count += 1
            writer.add(SCHEMA_KEY, schema.document())
            writer.finish()
        with disk_errors(path):
            size_bytes, sha256 = _file_facts(file.path)
        file.publish()
    return CacheFileFacts(bytes=size_bytes, sha256=sha256, digest=digest.hexdigest(), records=count)


class _Writer:
    """An LMDB file being filled in the order of its keys, within a budget."""

    def __init__(
        self,
        path: Path,
        where: Path,
        limit_bytes: int | None,
        reserve_bytes: int,
        transaction_bytes: int,
        map_bytes: int,
    ) -> None:
        self._where = str(where.absolute())
        self._limit_bytes = limit_bytes
        self._reserve_bytes = reserve_bytes
        self._transaction_bytes = transaction_bytes
        self._map_bytes = map_bytes
        self._batch: list[tuple[bytes, bytes]] = []
        self._batch_bytes = 0
        self._pending_bytes = 0
        self._added = 0
        # One writer of a private file needs no lock. meminit is what makes the bytes repeatable.
        self._env: Any = lmdb.open(
            str(path), subdir=False, lock=False, map_size=map_bytes, sync=False, meminit=True
        )
        self._page_bytes = int(self._env.stat()["psize"])
        self._file_bytes = self._used_bytes()
        self._room_bytes = self._free_bytes() - reserve_bytes

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._env.close()

    def add(self, key: bytes, value: bytes) -> None:
        if len(value) > _LARGEST_RECORD_BYTES:
            message = f"record {self._added} has {len(value)} bytes; LMDB takes less than 4 GiB"
            raise FatalError("cache.schema", message, where=self._where)
        self._pending_bytes += self._cost_bytes(value)
        self._within_budget(self._file_bytes + self._pending_bytes)
        self._batch.append((key, value))
        self._batch_bytes += len(value)
        self._added += 1
        if self._batch_bytes >= self._transaction_bytes:
            self._commit()

    def finish(self) -> None:
        self._commit()
        with _lmdb_errors(self._where, self._page_bytes):
            self._env.sync(True)

    def _commit(self) -> None:
        with _lmdb_errors(self._where, self._pending_bytes):
            while not self._try_commit():
                # A full map throws the whole transaction away: put the batch once more.
                self._map_bytes *= 2
                self._env.set_mapsize(self._map_bytes)
        self._batch.clear()
        self._batch_bytes = self._pending_bytes = 0
        self._file_bytes = self._used_bytes()
        self._room_bytes = self._free_bytes() - self._reserve_bytes
        self._within_budget(self._file_bytes)

    def _try_commit(self) -> bool:
        try:
            with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(self._batch, append=True)
        except lmdb.MapFullError:
            return False
        return True

    def _used_bytes(self) -> int:
        return (int(self._env.info()["last_pgno"]) + 1) * self._page_bytes

    def _cost_bytes(self, value: bytes) -> int:
        # LMDB gives a value of more than about half a page pages of its own.
        if len(value) <= self._page_bytes // 2:
            return len(value)
        return -(-(len(value) + 16) // self._page_bytes) * self._page_bytes

    def _free_bytes(self) -> int:
        return shutil.disk_usage(os.path.dirname(self._where)).free

    def _within_budget(self, bytes_: int) -> None:
        if self._reserve_bytes and self._pending_bytes > self._room_bytes:
            count = format_count(self._added, "record")
            reserve = format_bytes(self._reserve_bytes)
            message = f"the cache would leave less than {reserve} of the disk after {count}"
            raise StoreError("store.full", message, where=self._where, hint="make room there")
        if self._limit_bytes is not None and bytes_ > self._limit_bytes:
            count = format_count(self._added, "record")
            budget = format_bytes(self._limit_bytes)
            raise FatalError(
                "run.endless",
                f"the cache passes its budget of {budget} after {count}",
                where=self._where,
                hint="raise the budget, or end the dataset (does it repeat?)",
            )


@contextmanager
def _lmdb_errors(where: str, need_bytes: int) -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        # A disk that takes only some of a write is an input/output error to LMDB.
        free_bytes = shutil.disk_usage(os.path.dirname(where)).free
        if isinstance(error, lmdb.DiskError) or free_bytes < need_bytes:
            raise StoreError("store.full", "no space is left", where=where) from error
        raise StoreError("store.refused", f"LMDB: {error}", where=where) from error


def _file_facts(path: Path) -> tuple[int, str]:
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return os.fstat(file.fileno()).st_size, sha256
