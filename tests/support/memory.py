"""A store in this process's memory: ``memory://name/prefix``.

Stores with the same name share their objects within the process. It follows the contract exactly,
so it is the model that other stores are tested against. Importing this module registers the scheme.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from larder.config.urls import EXAMPLES
from larder.disk import disk_errors
from larder.errors import NotFoundError, ObjectError, PreconditionError
from larder.store import OPENERS
from larder.store.base import Buffer, Features, ObjectInfo, Store, WriteOptions, Writer
from larder.store.delegate import BytesReader
from larder.store.etag_trust import EtagTrust
from larder.store.keys import check_key, folder_prefix, object_url

_PAGE_KEYS = 1000
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    etag: str
    modified_us: int
    content_type: str | None
    metadata: Mapping[str, str]
    headers: Mapping[str, str]


def _kept(like: ObjectInfo | None) -> tuple[str | None, Mapping[str, str], Mapping[str, str]]:
    return (like.content_type, like.metadata or {}, like.headers or {}) if like else (None, {}, {})


@dataclass(slots=True)
class _Bucket:
    objects: dict[str, _Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    etag_trust: EtagTrust = field(default_factory=EtagTrust)

    def after(self, first: str, last: str) -> list[tuple[str, _Object]]:
        """A page of the keys that begin with ``first`` and come after ``last``."""
        with self.lock:
            keys = sorted(key for key in self.objects if key.startswith(first) and key > last)
            return [(key, self.objects[key]) for key in keys[:_PAGE_KEYS]]


_BUCKETS: dict[str, _Bucket] = {}
_BUCKETS_LOCK = threading.Lock()


def forget(name: str) -> None:
    """Drop all objects of ``memory://name``."""
    with _BUCKETS_LOCK:
        _BUCKETS.pop(name, None)


class MemoryStore(Store):
    """The objects of ``memory://name``, made when first used, whose keys begin with a prefix."""

    def __init__(self, name: str, prefix: str = "") -> None:
        with _BUCKETS_LOCK:
            self._bucket = _BUCKETS.setdefault(name, _Bucket())
        self._prefix = folder_prefix(prefix)
        self._url = f"memory://{name}/{self._prefix}"

    @property
    def url(self) -> str:
        return self._url

    @property
    def features(self) -> Features:
        trust = self._bucket.etag_trust
        return Features(etag_is_md5=True, etag_trust=trust)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Each page is looked up when it is requested."""
        first = self._prefix + prefix
        last = max(self._prefix + start_after, self._prefix)
        while page := self._bucket.after(first, last):
            yield [self._info(key, each) for key, each in page]
            last = page[-1][0]

    def head(self, key: str) -> ObjectInfo:
        return self._info(self._full(key), self._find(key, None))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> MemoryReader:
        """The reader keeps the original bytes."""
        stored = self._find(key, if_match)
        info = self._info(self._full(key), stored)
        if offset > info.size_bytes:
            raise ObjectError(
                "object.truncated",
                f"it has only {info.size_bytes} bytes, none at {offset}",
                where=object_url(self._url, key),
            )
        end = None if length is None else offset + length
        return MemoryReader(info, memoryview(stored.data)[offset:end])

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        if_match, like = options.get("if_match"), options.get("like")
        full = self._full(key)
        made = bytes(data)
        etag = hashlib.md5(made, usedforsecurity=False).hexdigest()
        with self._bucket.lock:
            current = self._bucket.objects.get(full)
            if options.get("if_absent") and current is not None:
                where = object_url(self._url, key)
                raise PreconditionError("object.exists", "it already exists", where=where)
            if if_match is not None and (current is None or current.etag != if_match):
                raise self._changed(key)
            new = _Object(made, etag, time.time_ns() // 1000, *_kept(like))
            self._bucket.objects[full] = new
        return self._info(full, new)

    def writer(
        self, key: str, *, like: ObjectInfo | None = None, sync: bool = True
    ) -> MemoryWriter:
        del sync
        check_key(key, self._url)
        return MemoryWriter(self, key, like)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        with disk_errors(path, reading=True):
            return self.put(key, path.read_bytes())

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        full = self._full(key)
        with self._bucket.lock:
            current = self._bucket.objects.get(full)
            if current is not None and if_match not in (None, current.etag):
                raise self._changed(key)
            self._bucket.objects.pop(full, None)

    def _full(self, key: str) -> str:
        check_key(key, self._url)
        return self._prefix + key

    def _find(self, key: str, if_match: str | None) -> _Object:
        full = self._full(key)
        with self._bucket.lock:
            stored = self._bucket.objects.get(full)
        if stored is None:
            where = object_url(self._url, key)
            raise NotFoundError("object.missing", "no such object", where=where)
        if if_match is not None and stored.etag != if_match:
            raise self._changed(key)
        return stored

    def _changed(self, key: str) -> PreconditionError:
        where = object_url(self._url, key)
        return PreconditionError("object.changed", "it changed since it was listed", where=where)

    def _info(self, full: str, stored: _Object) -> ObjectInfo:
        key = full[len(self._prefix) :]
        return ObjectInfo(
            key,
            len(stored.data),
            stored.etag,
            stored.modified_us,
            content_type=stored.content_type,
            metadata=stored.metadata,
            headers=stored.headers,
        )


class MemoryReader(BytesReader):
    def __iter__(self) -> Iterator[Buffer]:
        for data in super().__iter__():
            for start in range(0, len(data), _CHUNK_BYTES):
                yield data[start : start + _CHUNK_BYTES]


class MemoryWriter(Writer):
    def __init__(self, store: MemoryStore, key: str, like: ObjectInfo | None) -> None:
        self._store = store
        self._key = key
        self._like = like
        self._data = bytearray()

    def write(self, data: Buffer) -> None:
        self._data += data

    def commit(self) -> ObjectInfo:
        return self._store.put(self._key, self._data, like=self._like)

    def abort(self) -> None:
        self._data = bytearray()


EXAMPLES["memory"] = "write memory://name"
OPENERS["memory"] = lambda url, access: MemoryStore(url.bucket, url.prefix)
