"""The one narrow interface over file systems, S3, GCS and memory.

A store is a bucket and a prefix, or a directory. Keys are relative to it, with ``/`` between
their segments, and are ordered by their UTF-8 bytes, as S3 and GCS order them.

Every call raises the errors of `larder.errors` and no others:

- `NotFoundError` (``object.missing``): no such object.
- `PreconditionError` (``object.changed`` for ``if_match``, ``object.exists`` for ``if_absent``).
- `ObjectError` (``object.unreadable``, ``object.bad_key``, ``object.truncated``): this object only.
- `StoreError` (``store.denied``, ``store.missing``, ``store.region``, ``store.refused``,
  ``store.full``): everything in this store.
- `RetryableError` (``store.unavailable``): the same call may succeed later. `larder.store.retry`
  is the only place that repeats a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from larder.store.etag_trust import EtagTrust

__all__ = ["Buffer", "Features", "ObjectInfo", "Reader", "Store", "Writer"]

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or a HEAD tells of one object.

    Attributes:
        key: Relative to the store.
        size_bytes: Length in bytes.
        etag: Opaque, without quotes; changes when the content does. The md5 of the content
            only where the store says so (`Features.etag_is_md5`) and the text is 32 hex digits.
        modified_us: Last modification, microseconds since 1970 UTC.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int


@dataclass(frozen=True, slots=True)
class Features:
    """What a store can do, where stores differ.

    Attributes:
        create_if_absent: ``put(if_absent=True)`` is atomic.
        replace_if_match: ``put(if_match=...)`` is atomic.
        etag_is_md5: An etag of 32 hex digits is the content's md5, unless KMS or the like is used.
        local_path: Objects are files that can be opened by path.
        etag_trust: What this process has learned of the etags, where ``etag_is_md5``; None learns
            nothing.
    """

    create_if_absent: bool
    replace_if_match: bool
    etag_is_md5: bool
    local_path: bool = False
    etag_trust: EtagTrust | None = field(default=None, compare=False, repr=False)


class Reader(Protocol):
    """An object being read: iterate over it once, from front to back."""

    @property
    def info(self) -> ObjectInfo:
        """The object as the store described it when it was opened."""

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes, in buffers of any size.

        Raises:
            PreconditionError: The object changed while it was read (where the store can tell).
            ObjectError: ``object.truncated``: not as many bytes as announced.
            RetryableError: The connection broke.
        """

    def close(self) -> None:
        """Release the connection or file; calling it twice is fine."""

    def __enter__(self) -> Reader: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Writer(Protocol):
    """An object being written in a stream. Nobody sees it before `commit` returns.

    As a context manager it aborts unless `commit` was called.
    """

    def write(self, data: Buffer) -> None:
        """Append bytes. The buffer may be reused once this returns."""

    def commit(self) -> ObjectInfo:
        """Make the object visible, durable and whole, in one step."""

    def abort(self) -> None:
        """Throw away what was written; calling it twice, or after commit, is fine."""

    def __enter__(self) -> Writer: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Store(Protocol):
    """A bucket and prefix, or a directory. All methods may be called from many threads."""

    @property
    def url(self) -> str:
        """``s3://bucket/prefix/``, ``file:///dir/`` or ``memory://name/``: without secrets."""

    @property
    def features(self) -> Features:
        """What this store can do."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Pages of the objects whose keys begin with ``prefix``, in order of the keys' bytes.

        ``prefix`` is a string prefix, not a folder. A page is never empty. A page that cannot be
        had raises: a listing either ends normally and is complete, or raises.
        """

    def head(self, key: str) -> ObjectInfo:
        """Describe one object."""

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """Open an object, or ``length`` bytes of it from ``offset``, for one pass."""

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """The bytes of an object (or a range of it): for what fits in memory."""

    def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """Write a whole object in one step: visible and durable when this returns."""

    def writer(self, key: str) -> Writer:
        """Begin to write an object in a stream (multipart where the store has it)."""

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """Write a local file as an object, in parts where it is large."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens if it is not there."""

    def close(self) -> None:
        """Release connections; the store is not used again."""
