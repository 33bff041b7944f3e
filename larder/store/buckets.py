"""What the stores of buckets have in common: their URLs, and objects written as streams."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from larder.config.access import Access
from larder.disk import disk_errors
from larder.errors import StoreError
from larder.store.accounts import server_endpoint
from larder.store.base import BucketPrefix, Buffer, Features, ObjectInfo, Readable, Store, Writer
from larder.store.calls import Call
from larder.store.etags import etag_trust
from larder.store.interrupt import Interrupt, in_thread, interrupted_by
from larder.store.keys import check_key, folder_prefix
from larder.store.retry import RetryPolicy

PART_BYTES = 16 << 20
"""Of a stream that is written: GCS takes multiples of 256 KiB, and S3 10,000 parts of 5 MiB."""

# A stream holds three parts in memory, an upload of a file five.
_STREAM_PARTS = 2
_UPLOAD_PARTS = 4


T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def time_of(text: str) -> int:
    """A time in a document, microseconds since 1970 UTC."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def storage_class(name: str | None) -> str:
    """The storage class in the store's words; empty for ``STANDARD``, which may be left out."""
    return "" if name is None or name == "STANDARD" else sys.intern(name)


def check_order(last: str, keys: Iterable[str], store_url: str, hint: str = "") -> str:
    """The last key of a page, whose keys must follow one another and that of the page before."""
    for key in keys:
        if key <= last:
            message = "the store does not list its keys in order"
            raise StoreError("store.refused", message, where=store_url, hint=hint)
        last = key
    return last


class BucketStore(Store):
    """The objects of a bucket whose keys begin with a prefix."""

    def __init__(self, provider: str, bucket: str, prefix: str, access: Access) -> None:
        server = server_endpoint(provider, access)
        self._prefix = folder_prefix(prefix)
        self._url = f"{provider}://{bucket}/{self._prefix}"
        self._policy = RetryPolicy(deadline_seconds=access.give_up_seconds)
        self._features = Features(
            replace_if_match=True,
            etag_is_md5=True,
            etag_trust=etag_trust(provider, bucket, server, access.profile),
            place=BucketPrefix(provider, server, bucket, self._prefix),
        )

    @property
    def url(self) -> str:
        """``s3://bucket/prefix/``, literally: nothing is percent-encoded."""
        return self._url

    @property
    def features(self) -> Features:
        """Those of S3 and GCS. Some compatible servers and emulators ignore conditions."""
        return self._features

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        del sync  # every write is durable
        return self._writer(key, like, _STREAM_PARTS)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        with (
            disk_errors(path, reading=True),
            open(path, "rb") as source,
            self._writer(key, None, _UPLOAD_PARTS) as writer,
        ):
            while data := source.read(PART_BYTES):
                writer.write(data)
            return writer.commit()

    @abstractmethod
    def _writer(self, key: str, like: ObjectInfo | None, parts: int) -> Writer:
        """Write a stream, of which so many parts may be sent at once."""

    def _call(self, key: str, *, writing: bool = False, if_absent: bool = False) -> Call:
        check_key(key, self._url, prefix=self._prefix)
        return Call(self._url, key, writing, if_absent, self._prefix + key)

    def _same_server(self, source: Readable) -> BucketPrefix | None:
        """The place of a store from which this one's server can copy."""
        origin, place = source.features.place, self._features.place
        if origin and place and (origin.provider, origin.server) == (place.provider, place.server):
            return origin
        return None


class PartsWriter(Writer):
    """A stream whose bytes are collected in parts, which threads send while others are filled."""

    def __init__(self, threads: int) -> None:
        self._buffer = bytearray()
        self._interrupt = Interrupt(interrupted_by())
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="larder-part")
        self._done = False

    def write(self, data: Buffer) -> None:
        """Append bytes; waits while too many parts are being sent."""
        assert not self._done, "the writer is committed or aborted"
        with memoryview(data).cast("B") as view:
            start = 0
            while start < len(view):
                room = self._part_bytes() - len(self._buffer)
                if not room:
                    self._send()
                    continue
                self._buffer += view[start : start + room]
                start += room

    def commit(self) -> ObjectInfo:
        assert not self._done, "the writer is committed or aborted"
        info = self._commit()
        self._close()
        return info

    def abort(self) -> None:
        """Discard what was sent; parts on their way are not waited for."""
        if not self._done:
            self._interrupt.stop()
            self._close()
            self._cancel()

    def _close(self) -> None:
        self._done = True
        self._buffer = bytearray()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _in_thread(self, send: Callable[[], T]) -> Future[T]:
        with self._interrupt.active():
            return in_thread(self._pool, send)

    def _taken(self) -> bytearray:
        """The part that was collected; another one begins."""
        part, self._buffer = self._buffer, bytearray()
        return part

    def _part_bytes(self) -> int:
        return PART_BYTES

    @abstractmethod
    def _send(self) -> None:
        """Start sending the part that was collected, once there is a thread for it."""

    @abstractmethod
    def _commit(self) -> ObjectInfo:
        """Send the rest, and make the object visible."""

    @abstractmethod
    def _cancel(self) -> None:
        """Discard what was sent, if the store allows it."""
