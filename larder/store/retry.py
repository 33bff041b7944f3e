"""The only place that repeats a call to a store.

Calls that fail with `RetryableError` are repeated, with a growing, random pause, until they succeed
or the policy gives up. A listing continues after its last good page, and a reader at the byte where
it failed, if the object is still the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from larder.config.urls import GIVE_UP_SECONDS
from larder.errors import NotFoundError, PreconditionError, RetryableError
from larder.store.base import (
    AHEAD,
    PIECE_BYTES,
    BucketPrefix,
    Buffer,
    Contents,
    ObjectInfo,
    Reader,
    ReadOptions,
    Store,
    Upload,
    UploadedPart,
    UploadOptions,
    WriteOptions,
    Writer,
    span_bytes,
)
from larder.store.delegate import BytesReader, DelegatingStore
from larder.store.etags import read_listed
from larder.store.interrupt import interrupted_by

if TYPE_CHECKING:
    from typing import Unpack

T = TypeVar("T")


class RetryPolicy(NamedTuple):
    """Number and timing of repeated calls.

    The pause before attempt ``n + 1`` is random between 0 and ``first_delay_seconds * 2**(n-1)``,
    but at most ``most_delay_seconds`` (full jitter: callers that failed at the same time do not
    retry at the same time).

    Attributes:
        attempts: Maximum number of attempts, at least 1. Twelve take 45 seconds, on average.
        deadline_seconds: Time from the start of the first attempt to the end of the last. No
            attempt starts that would end later if it took as long as the previous attempt.
    """

    attempts: int = 12
    first_delay_seconds: float = 0.25
    most_delay_seconds: float = 15.0
    deadline_seconds: float = GIVE_UP_SECONDS
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.uniform


class _Tries:
    """The attempts of one call, or of a stream since its last progress."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._start = self._began = policy.clock()
        self.failures = 0

    def pause(self, error: RetryableError) -> None:
        """Wait after a failure; raise it with the number of attempts if no attempt is left."""
        policy = self._policy
        self.failures += 1
        longest = policy.first_delay_seconds * 2.0 ** (self.failures - 1)
        delay = policy.uniform(0.0, min(longest, policy.most_delay_seconds))
        interrupt = interrupted_by()
        now = policy.clock()
        elapsed, took = now - self._start, now - self._began
        deadline = min(policy.deadline_seconds, error.within_seconds)
        deadline = min(deadline, interrupt.patience_seconds(elapsed)) if interrupt else deadline
        delay = max(delay, min(error.after_seconds, deadline))
        ends = elapsed + delay + took
        if self.failures >= policy.attempts or ends > deadline:
            noun = "try" if self.failures == 1 else "tries"
            final = RetryableError(
                error.code,
                f"{error.message} ({self.failures} {noun} in {elapsed:.0f} s)",
                where=error.where,
                hint=error.hint,
            )
            final.attempts = self.failures
            final.lasted_seconds = elapsed
            raise final from error
        (interrupt.sleep if interrupt else policy.sleep)(delay)
        self._began = policy.clock()


def repeated(call: Callable[[], T], policy: RetryPolicy) -> T:
    tries = _Tries(policy)
    while True:
        try:
            return call()
        except RetryableError as error:
            tries.pause(error)


class RetryStore(DelegatingStore):
    """A store whose calls are repeated according to a policy.

    ``writer()`` is not repeated: bytes written to a stream are gone and cannot be sent again. The
    inner store has to make the upload parts of a stream reliable.
    """

    def __init__(self, inner: Store, policy: RetryPolicy) -> None:
        super().__init__(inner)
        self.policy = policy

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        return repeated(partial(call, **options), self.policy)

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        """Yield the contents; read one by one from the first failure on."""
        left = list(objects)
        try:
            for data in self.inner.get_each(tuple(left), ahead):
                del left[0]
                yield data
        except RetryableError:
            for key, size_bytes, etag in left:
                yield read_listed(self, key, size_bytes, etag, PIECE_BYTES)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        tries = _Tries(self.policy)
        while True:
            try:
                for page in self.inner.list(prefix, start_after=start_after):
                    yield page
                    start_after = page[-1].key
                    tries = _Tries(self.policy)
            except RetryableError as error:
                tries.pause(error)
            else:
                return

    def open(self, key: str, **options: Unpack[ReadOptions]) -> Reader:
        first = super().open(key, **options)
        if isinstance(first, BytesReader):
            return first
        offset, length = options.get("offset", 0), options.get("length")
        return RetryReader(self.inner, self.policy, first, offset, length)

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        """Write an object; an existing object with the same bytes counts as written, because the
        answer to an earlier attempt may be lost.
        """
        try:
            return repeated(partial(self.inner.put, key, data, **options), self.policy)
        except PreconditionError:
            if ours := self._ours(key, data):
                return ours
            raise

    def _ours(self, key: str, data: Buffer) -> ObjectInfo | None:
        """Return the existing object if it has exactly these bytes."""
        try:
            info = self.head(key)
            same = info.size_bytes == len(data) and self.get(key, if_match=info.etag) == data
        except (NotFoundError, PreconditionError):
            return None
        return info if same else None

    def begin_upload(self, key: str, **options: Unpack[UploadOptions]) -> Upload | None:
        inner = super().begin_upload(key, **options)
        return RetryUpload(inner, self.policy) if inner is not None else None

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        return self.inner.writer(key, like=like, sync=sync)


class RetryUpload(Upload):
    """Repeats the calls of an upload, except `abort` and `leave`."""

    def __init__(self, inner: Upload, policy: RetryPolicy) -> None:
        self.id = inner.id
        self._inner = inner
        self._policy = policy

    @property
    def whole_md5(self) -> bool | None:
        return self._inner.whole_md5

    def sent(self) -> Mapping[int, str] | None:
        return repeated(self._inner.sent, self._policy)

    def send(self, number: int, pieces: Sequence[Buffer], crc32c: int) -> UploadedPart:
        return repeated(lambda: self._inner.send(number, pieces, crc32c), self._policy)

    def send_copy(
        self, number: int, source: BucketPrefix, info: ObjectInfo, offset: int, length: int
    ) -> UploadedPart:
        return repeated(
            lambda: self._inner.send_copy(number, source, info, offset, length), self._policy
        )

    def commit(self, parts: Sequence[UploadedPart]) -> ObjectInfo:
        return repeated(lambda: self._inner.commit(parts), self._policy)

    def abort(self) -> None:
        self._inner.abort()

    def leave(self) -> None:
        self._inner.leave()


class RetryReader(Reader):
    """A reader that opens the object again where the stream failed."""

    def __init__(
        self, store: Store, policy: RetryPolicy, first: Reader, offset: int, length: int | None
    ) -> None:
        self.info = first.info
        self._store = store
        self._policy = policy
        self._reader = first
        self._offset = offset
        self._left = span_bytes(self.info.size_bytes, offset, length)

    def __iter__(self) -> Iterator[Buffer]:
        tries = _Tries(self._policy)
        broken = False
        while True:
            try:
                if broken:
                    self._reopen()
                for data in self._reader:
                    self._offset += len(data)
                    self._left -= len(data)
                    yield data
                    tries = _Tries(self._policy)
            except RetryableError as error:
                broken = True
                tries.pause(error)
            else:
                return

    def _reopen(self) -> None:
        self._reader.close()
        self._reader = self._store.open(
            self.info.key, offset=self._offset, length=self._left, if_match=self.info.etag
        )

    def close(self) -> None:
        self._reader.close()
