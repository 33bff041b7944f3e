"""Build one cache file: an LMDB file of records in order, in groups.

The same records give the same bytes in every process on a machine. The file depends on the page
size of the machine, so the content has a separate digest.
"""

from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, Final

import lmdb

from larder.cache.cache_record import SCHEMA_KEY, Buffer, CacheFileFacts, ContentDigest
from larder.cache.group import (
    GROUP_BYTES,
    GROUPS_KEY,
    group_key,
    group_value,
    grouped,
    groups_value,
)
from larder.cache.schema import RecordSchema
from larder.disk import disk_errors, draft, full_error, sha256_file
from larder.errors import FatalError, StoreError
from larder.units import format_bytes

TRANSACTION_BYTES: Final = 1_000_000
"""Few enough that the written bytes stay in the processor's cache, and memory is used again."""

MAP_BYTES: Final = 1 << 30
"""Initial size of the memory map, which doubles when full. It affects the bytes of the file."""

_LARGEST_RECORD_BYTES = (1 << 32) - 1


def build_file(
    records: Iterable[Buffer],
    schema: RecordSchema,
    path: Path,
    *,
    limit_bytes: int | None = None,
    used_bytes: int = 0,
    place: str = "",
    reserve_bytes: int = 0,
    digest_type: type[ContentDigest] = ContentDigest,
) -> CacheFileFacts:
    """Write records from `Codec` to an LMDB file, which appears when it is complete and durable.

    An endless dataset stops at ``limit_bytes`` (``run.endless``) instead of filling the disk; other
    files already use ``used_bytes`` of the limit. ``reserve_bytes`` of the disk remain free, which
    is checked before every transaction, because files that are built at the same time share the
    free space. Memory is about twice `TRANSACTION_BYTES`.
    """
    digest = digest_type(schema)
    with draft(path) as file:
        limits = limit_bytes, used_bytes, reserve_bytes
        with closing(_CacheFileWriter(file.path, path, *limits)) as writer:
            ends = array("q")
            for group in grouped(records, GROUP_BYTES):
                for record in group:
                    digest.add(record)
                value = group_value(group, is_fixed=schema.is_fixed)
                writer.add(group_key(len(ends)), value, len(group))
                ends.append(writer.records)
                del group, record, value  # they may be large, and the next group is made now
            writer.add(GROUPS_KEY, groups_value(ends, place))
            writer.add(SCHEMA_KEY, schema.document(place=place, digest=digest.hexdigest()))
            writer.commit()
            with disk_errors(path), ThreadPoolExecutor(1, "larder-cache") as thread:
                hashing = thread.submit(sha256_file, file.path)
                writer.sync()  # waits for the disk while the thread hashes
                size_bytes, sha256 = file.path.stat().st_size, hashing.result()
        file.publish()
    return CacheFileFacts(size_bytes, sha256, digest.hexdigest(), writer.records, place)


class _CacheFileWriter:
    def __init__(
        self, path: Path, where: Path, limit_bytes: int | None, used_bytes: int, reserve_bytes: int
    ) -> None:
        self._where = str(where.absolute())
        self._limit_bytes = limit_bytes
        self._others_bytes = used_bytes
        self._reserve_bytes = reserve_bytes
        self._map_bytes = MAP_BYTES
        self._batch: list[tuple[bytes, Buffer]] = []
        self._batch_bytes = 0
        self.records = 0
        # A single writer of a private file needs no lock. meminit makes the bytes reproducible.
        with _lmdb_errors(self._where, need_bytes=2 * PAGESIZE):
            self._env: Any = lmdb.open(
                str(path), subdir=False, lock=False, map_size=MAP_BYTES, sync=False, meminit=True
            )

    def close(self) -> None:
        self._env.close()

    def add(self, key: bytes, value: Buffer, records: int = 0) -> None:
        """Add a value with a number of records; values are written in batches."""
        if len(value) > _LARGEST_RECORD_BYTES:
            message = f"record {self.records} has {len(value)} bytes; LMDB takes less than 4 GiB"
            raise FatalError("cache.schema", message, where=self._where)
        self._batch.append((key, value))
        self._batch_bytes += len(value)
        self.records += records
        if self._batch_bytes >= TRANSACTION_BYTES:
            self.commit()

    def sync(self) -> None:
        with _lmdb_errors(self._where, PAGESIZE):
            self._env.sync(True)

    def commit(self) -> None:
        """Write the added values, if the disk has room for them; refuse a file that is too long."""
        room_bytes = _free_bytes(self._where) - self._reserve_bytes
        if self._reserve_bytes and room_bytes < self._batch_bytes:
            reserve = format_bytes(self._reserve_bytes)
            message = f"the cache would leave less than {reserve} of the disk"
            raise StoreError("store.full", message, where=self._where, hint="free some space there")
        with _lmdb_errors(self._where, self._batch_bytes + PAGESIZE):
            while not self._try_commit():
                # A full map discards the whole transaction: write the batch again.
                self._map_bytes *= 2
                self._env.set_mapsize(self._map_bytes)
        self._batch.clear()
        self._batch_bytes = 0
        pages = int(self._env.info()["last_pgno"]) + 1
        size_bytes = self._others_bytes + pages * int(self._env.stat()["psize"])
        if self._limit_bytes is not None and size_bytes > self._limit_bytes:
            message = f"the cache exceeds its budget of {format_bytes(self._limit_bytes)}"
            hint = "raise the budget, or end the dataset (does it repeat?)"
            raise FatalError("run.endless", message, where=self._where, hint=hint)

    def _try_commit(self) -> bool:
        try:
            with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(self._batch, append=True)
        except lmdb.MapFullError:
            return False
        return True


def _free_bytes(path: str) -> int:
    return shutil.disk_usage(os.path.dirname(path)).free


@contextmanager
def _lmdb_errors(where: str, need_bytes: int) -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        # LMDB reports a partial write to a full disk as an input/output error.
        if isinstance(error, lmdb.DiskError) or _free_bytes(where) < need_bytes:
            raise full_error(error, where) from error
        raise StoreError("store.refused", f"LMDB: {error}", where=where) from error
