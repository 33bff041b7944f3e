"""The only place that repeats a call to a store.

`RetryStore` repeats what fails with `RetryableError`, with a growing, random pause, until it
succeeds or the policy says enough. A listing goes on after its last good page and a reader at
the byte where it broke, if the object is still the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from larder.errors import (
    NotFoundError,
    PreconditionError,
    RetryableError,
)
from larder.store.base import Buffer, ObjectInfo, Reader, Store, Writer
from larder.store.delegate import DelegatingStore

__all__ = ["RetryPolicy", "RetryReader", "RetryStore"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to keep trying.

    The pause before try ``n + 1`` is random between nothing and ``first_delay_seconds * 2**(n-1)``,
    but at most ``most_delay_seconds`` (full jitter: callers that failed together do not come back
    together).

    Attributes:
        attempts: Tries in all, at least 1.
        first_delay_seconds: Longest pause after the first failure.
        most_delay_seconds: Longest pause of all.
        deadline_seconds: No new try begins later than this after the first one began.
        sleep: Pauses for so many seconds; for tests.
        clock: Seconds from any fixed moment; for tests.
        uniform: A random number between two; for tests.
    """

    attempts: int = 8
    first_delay_seconds: float = 0.25
    most_delay_seconds: float = 15.0
    deadline_seconds: float = 180.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.uniform


class _Tries:
    """The tries of one call, or of one stretch of a stream without progress."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._start = policy.clock()
        self.failures = 0

    def pause(self, error: RetryableError) -> None:
        """Wait after a failure.

        Raises:
            RetryableError: There was the last try; the message counts them.
        """
        policy = self._policy
        self.failures += 1
        longest = policy.first_delay_seconds * 2.0 ** (self.failures - 1)
        delay = policy.uniform(0.0, min(longest, policy.most_delay_seconds))
        elapsed = policy.clock() - self._start
        if self.failures >= policy.attempts or elapsed + delay > policy.deadline_seconds:
            noun = "try" if self.failures == 1 else "tries"
            raise RetryableError(
                error.code,
                f"{error.message} ({self.failures} {noun} in {elapsed:.0f} s)",
                where=error.where,
                hint=error.hint,
            ) from error
        policy.sleep(delay)


class RetryStore(DelegatingStore):
    """A store whose calls are repeated by a policy.

    ``writer()`` is passed through: bytes that went into a stream are gone, so that nobody could
    send them again. The backend has to make a stream's parts reliable itself.

    Args:
        inner: The store that is called.
        policy: When to give up.
    """

    def __init__(self, inner: Store, policy: RetryPolicy) -> None:
        super().__init__(inner)
        self.policy = policy

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        """Repeat a call until it succeeds or the policy says enough."""
        tries = _Tries(self.policy)
        while True:
            try:
                return call()
            except RetryableError as error:
                tries.pause(error)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Readable.list`; goes on after the last page that came."""
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

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> RetryReader:
        """See `larder.store.base.Readable.open`; the reader goes on where the stream broke."""
        first = super().open(key, offset=offset, length=length, if_match=if_match)
        return RetryReader(self.inner, self.policy, first, offset, length)

    def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """See `larder.store.base.Store.put`.

        The answer to a conditional put may get lost after the object was written; the repeated
        call then meets its own object. If the bytes there are these, that counts as written.
        """
        tries = _Tries(self.policy)
        while True:
            try:
                return self.inner.put(key, data, if_absent=if_absent, if_match=if_match)
            except RetryableError as error:
                tries.pause(error)
            except PreconditionError:
                ours = self._ours(key, data) if tries.failures else None
                if ours is None:
                    raise
                return ours

    def _ours(self, key: str, data: Buffer) -> ObjectInfo | None:
        """The object there, if it holds just these bytes."""
        try:
            info = self.head(key)
            same = info.size_bytes == len(data) and self.get(key, if_match=info.etag) == data
        except (NotFoundError, PreconditionError):
            return None
        return info if same else None

    def writer(self, key: str) -> Writer:
        """See `larder.store.base.Store.writer`; not repeated."""
        return self.inner.writer(key)


class RetryReader(Reader):
    """See `larder.store.base.Reader`; opens the object again where its stream broke."""

    def __init__(
        self, store: Store, policy: RetryPolicy, first: Reader, offset: int, length: int | None
    ) -> None:
        self.info = first.info
        self._store = store
        self._policy = policy
        self._reader = first
        self._offset = offset
        rest = self.info.size_bytes - offset
        self._left = rest if length is None else min(length, rest)

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes, as the store's buffers come.

        Raises:
            LarderError: As `larder.store.base.Reader` says; `RetryableError` when tries ran out.
        """
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
        """Close the stream."""
        self._reader.close()
