"""Accounts, URLs and streamed writes, shared by the stores of buckets.

All stores of a process share the accounts at servers, because finding credentials and connecting
take long. Accounts are looked up again if the environment changes. A forked child makes its own:
connections cannot be shared, and another thread may have held a lock during the fork.
"""

from __future__ import annotations

import os
import re
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Generic, TypeVar

from larder.config.urls import Access, environment_endpoint
from larder.disk import disk_errors
from larder.errors import StoreError
from larder.forking import lock_of_process
from larder.store.base import (
    AHEAD,
    PIECE_BYTES,
    UNKNOWN_US,
    BucketPrefix,
    Buffer,
    Contents,
    Features,
    ObjectInfo,
    Readable,
    Store,
    Writer,
)
from larder.store.calls import Call, RefusedKeysError, connection_errors
from larder.store.etag_trust import etag_trust
from larder.store.etags import are_equal, read_listed
from larder.store.http import Answer, Http
from larder.store.interrupt import Interrupt, in_thread, interrupted_by
from larder.store.keys import check_key, folder_prefix
from larder.store.retry import RetryPolicy

T = TypeVar("T")
R = TypeVar("R")

_MOST = 32
_CONNECT_SECONDS = 10
_CERTIFICATES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_")


def server_endpoint(provider: str, access: Access) -> str:
    """Return the server's URL, without a slash at the end; empty for the cloud's own server."""
    return (access.endpoint or environment_endpoint(provider, os.environ)).rstrip("/")


def connections(endpoint: str, access: Access) -> Http:
    seconds = access.silence_seconds
    return Http(endpoint, connect_seconds=min(_CONNECT_SECONDS, seconds), silence_seconds=seconds)


class SharedAccounts(Generic[T]):
    """The accounts of one provider, least recently used first.

    Credentials depend on the environment variables that begin with one of ``variables``.
    """

    def __init__(self, make: Callable[[Access, str], T], variables: tuple[str, ...]) -> None:
        self._make = make
        self._variables = (*variables, *_CERTIFICATES, "HOME")
        self._accounts: dict[object, T] = {}
        self._lock = lock_of_process()

    def get(self, access: Access, store_url: str) -> T:
        environment = frozenset(
            (name, text)
            for name, text in os.environ.items()
            if name.startswith(self._variables) or name.lower().endswith("_proxy")
        )
        place = (os.getpid(), access, environment)
        with self._lock:
            account = self._accounts.pop(place, None) or self._make(access, store_url)
            self._accounts[place] = account
            if len(self._accounts) > _MOST:
                del self._accounts[next(iter(self._accounts))]  # stores keep their account
            return account


class Bucket(Generic[T]):
    """A bucket and the current process's account for it; a forked child uses its own account."""

    def __init__(
        self, name: str, store_url: str, access: Access, shared: Callable[[Access, str], T]
    ) -> None:
        self.name = name
        self.store_url = store_url
        self.access = access
        self._shared = shared
        self._current: tuple[int, T] | None = None

    @property
    def account(self) -> T:
        """The account, or an error if there are no valid credentials."""
        current = self._current
        if current is None or current[0] != os.getpid():
            account = self._shared(self.access, self.store_url)
            self._current = current = os.getpid(), account
        return current[1]


class RenewedKeys(Generic[T]):
    """The keys of an account, which may expire after minutes.

    ``ask`` gets the URL of a store, and whether the last keys were refused. It returns keys and
    their minimum validity in seconds, and is called again after half of that time.
    """

    def __init__(self, ask: Callable[[str, bool], tuple[T, float]]) -> None:
        self._ask = ask
        self._keys: tuple[T, ...] = ()
        self._until_seconds = 0.0
        self._lock = lock_of_process()

    def use(self, call: Callable[[T], R], store_url: str) -> R:
        """Make a call with the keys; repeat it with new keys if the first are refused."""
        keys = self._current(store_url)
        try:
            return call(*keys)
        except RefusedKeysError as error:
            others = self._current(store_url, keys)
            if others == keys:
                message, hint = f"{error.message}, and there are no others", error.hint
                raise RefusedKeysError(error.code, message, where=error.where, hint=hint) from error
        return call(*others)

    def _current(self, store_url: str, refused: object = None) -> tuple[T, ...]:
        """Return the keys in a tuple; keys asked for after a refusal come in a new tuple object."""
        with self._lock:
            again = self._keys is refused  # no other thread has asked since
            if again or time.monotonic() >= self._until_seconds:
                keys, valid_seconds = self._ask(store_url, again)
                if again or (keys,) != self._keys:
                    self._keys = (keys,)
                self._until_seconds = time.monotonic() + valid_seconds / 2
            return self._keys


PART_BYTES = 16 << 20
"""First part size of streams. GCS takes multiples of 256 KiB, S3 10,000 parts of 5 MiB or more."""

# With the part being filled, a stream holds three parts in memory, a file upload five.
_STREAM_PARTS = 2
_UPLOAD_PARTS = 4


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


_FRACTION = re.compile(r"(?<=:\d\d)\.(\d+)")
_OFFSET = re.compile(r"([+-]\d\d)(\d\d)$")


def time_of(text: str | None) -> int:
    """Parse a time of ISO 8601 or RFC 1123, UTC if it has no zone: microseconds since 1970 UTC.

    Return `UNKNOWN_US` without a text, and for 1970 or earlier, such as Go's year 1: servers
    without a time send these. Raise ValueError for other texts, such as a day alone.
    """
    if not (text := (text or "").strip()):
        return UNKNOWN_US
    if len(text) <= len("YYYY-MM-DD"):
        raise ValueError("a day without a time")
    # Python 3.10 reads neither Z nor +0100 nor fractions of other lengths than 3 and 6 digits.
    iso = _FRACTION.sub(lambda match: f".{match[1][:6]:0<6}", text)
    iso = _OFFSET.sub(r"\1:\2", re.sub("[Zz]$", "+00:00", iso))
    try:
        moment = datetime.fromisoformat(iso)
    except ValueError:
        moment = parsedate_to_datetime(_FRACTION.sub("", text))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // _MICROSECOND if moment > _EPOCH else UNKNOWN_US


def size_of(text: str) -> int:
    """Parse an object's size in bytes; raise ValueError if no object can have it."""
    size_bytes = int(text)
    if not 0 <= size_bytes < 1 << 63:
        raise ValueError("a size that no object has")
    return size_bytes


def storage_class(name: str | None) -> str:
    """Return the store's name of a storage class; empty for ``STANDARD``, which may be left out."""
    return "" if name is None or name == "STANDARD" else sys.intern(name)


_SHOWN_CHARACTERS = 100
_MAX_EMPTY_PAGES = 10_000


def list_pages(
    read: Callable[[str], tuple[list[ObjectInfo], str]], last: str, store_url: str
) -> Iterator[list[ObjectInfo]]:
    """Yield non-empty pages of objects in the order of their keys, all after the key ``last``.

    ``read`` gets a page's token, empty for the first page. It returns the page's objects and the
    next token, empty at the end. A listing out of order, or without an end, is ``store.refused``.
    """
    token, empty_pages = "", 0
    while empty_pages < _MAX_EMPTY_PAGES:
        before = token
        objects, token = read(before)
        for info in objects:
            if info.key <= last:
                raise _out_of_order(last, info.key, store_url)
            last = info.key
        empty_pages = 0 if objects else empty_pages + 1  # keys ascend, so other pages end
        if objects:
            yield objects
        if not token:
            return
        if token == before:
            break
    raise StoreError("store.refused", "the listing does not end", where=store_url)


def _out_of_order(last: str, key: str, store_url: str) -> StoreError:
    before, after = (repr(each[:_SHOWN_CHARACTERS]) for each in (last, key))
    message = f"the store does not list its keys in order: {after} comes after {before}"
    hint = "run again; if this comes back, the store's listings cannot be used"
    if last == key:
        message = f"the store lists a key twice, or one that was not asked for: {after}"
    if store_url.split("/")[2].endswith("--x-s3"):
        hint = "directory buckets of S3 Express cannot be used"
    return StoreError("store.refused", message, where=store_url, hint=hint)


class BucketStore(Store):
    """The objects of a bucket whose keys begin with a prefix."""

    def __init__(self, provider: str, bucket: str, prefix: str, access: Access) -> None:
        server = server_endpoint(provider, access)
        payer = (access.project or "") if access.requester_pays else None
        self._prefix = folder_prefix(prefix)
        self._url = f"{provider}://{bucket}/{self._prefix}"
        self._policy = RetryPolicy(deadline_seconds=access.give_up_seconds)
        self._features = Features(
            etag_is_md5=True,
            reads_ahead=True,
            uploads=provider == "s3",
            etag_trust=etag_trust(provider, bucket, server, access.profile),
            place=BucketPrefix(provider, server, bucket, self._prefix, payer),
        )

    @property
    def url(self) -> str:
        return self._url

    @property
    def features(self) -> Features:
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

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        """Yield the contents; open an object if its answer is unexpected, as it may be longer."""
        wanted = [(self._call(key), size_bytes, etag) for key, size_bytes, etag in objects]
        calls = [(call, etag) for call, _, etag in wanted]
        with closing(self._answers(calls, ahead)) as answers:
            for call, size_bytes, etag in wanted:
                with connection_errors(call):
                    answer = next(answers)
                data = answer.body
                is_same = not etag or are_equal(etag, self._etag(answer, call))
                as_listed = answer.status == 200 and is_same
                if data is None or len(data) != size_bytes or not as_listed:
                    answer.close()
                    data = read_listed(self, call.key, size_bytes, etag, PIECE_BYTES)
                yield data

    @abstractmethod
    def _answers(self, calls: Iterable[tuple[Call, str]], ahead: int) -> Generator[Answer]:
        """Yield the answers to requests for objects with these etags.

        An answer may be an error, or another state of the object; `BrokenError` if there is none.
        """

    @abstractmethod
    def _etag(self, answer: Answer, call: Call) -> str:
        """Return the etag in an answer; empty if the answer has none."""

    @abstractmethod
    def _writer(self, key: str, like: ObjectInfo | None, parts: int) -> Writer:
        """Start writing a stream that may send this number of parts at once."""

    def _call(self, key: str, *, writing: bool = False, if_absent: bool = False) -> Call:
        check_key(key, self._url, prefix=self._prefix)
        return Call(self._url, key, writing, if_absent, self._prefix + key)

    def _same_server(self, source: Readable) -> BucketPrefix | None:
        """Return the place of a store from which this store's server can copy; else None."""
        origin, place = source.features.place, self._features.place
        if origin and place and (origin.provider, origin.server) == (place.provider, place.server):
            return origin
        return None


class PartsWriter(Writer):
    """A stream of parts, which threads send while the next part is filled."""

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
        """Discard the sent parts, and stop requests in progress."""
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
        part, self._buffer = self._buffer, bytearray()
        return part

    def _part_bytes(self) -> int:
        return PART_BYTES

    @abstractmethod
    def _send(self) -> None:
        """Start sending the collected part, once a thread is free."""

    @abstractmethod
    def _commit(self) -> ObjectInfo:
        """Send the rest, and make the object visible."""

    @abstractmethod
    def _cancel(self) -> None:
        """Discard the sent parts, if the store allows it."""
