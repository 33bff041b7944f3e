"""The two narrow interfaces over file systems, S3, GCS and memory: `Readable` and `Store`.

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from larder.store.etag_trust import EtagTrust

__all__ = ["Buffer", "Features", "ObjectInfo", "Readable", "Reader", "Store", "Writer"]

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or a HEAD tells of one object.

    Stores fill in the optional fields where that costs no request of its own: a listing knows the
    storage class, say, and metadata only `Readable.head` and `Readable.open` give.

    Attributes:
        key: Relative to the store.
        size_bytes: Length in bytes.
        etag: Opaque, without quotes; changes when the content does. The md5 of the content
            only where the store says so (`Features.etag_is_md5`) and the text is 32 hex digits.
        modified_us: Last modification, microseconds since 1970 UTC.
        storage_class: As the store calls it, such as ``GLACIER``; empty for the standard class, or
            where the store has none.
        checksum: ``ALGORITHM:HEX`` of the content, where the store keeps one; else None.
        generation: The store's name of this state of the object (GCS's generation, S3's version
            ID); None where it has none.
        content_type: The media type; None where it is not known.
        metadata: The user's own, by lower-case name; None where it is not known.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int
    storage_class: str = ""
    checksum: str | None = None
    generation: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] | None = field(default=None, hash=False)


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


class _Closing(Protocol):
    """What is closed at the end of a ``with`` block, however it ends."""

    def close(self) -> None:
        """Let go of what is held; calling it twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Reader(_Closing, Protocol):
    """An object being read: iterate over it once, from front to back.

    Attributes:
        info: The object as the store described it when it was opened.
    """

    info: ObjectInfo

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes, in buffers of any size.

        Raises:
            PreconditionError: The object changed while it was read (where the store can tell).
            ObjectError: ``object.truncated``: not as many bytes as announced.
            RetryableError: The connection broke.
        """


class Writer(_Closing, Protocol):
    """An object being written in a stream. Nobody sees it before `commit` returns.

    As a context manager it aborts unless `commit` was called.
    """

    def write(self, data: Buffer) -> None:
        """Append bytes. The buffer may be reused once this returns."""

    def commit(self) -> ObjectInfo:
        """Make the object visible, durable and whole, in one step."""

    def abort(self) -> None:
        """Throw away what was written; calling it twice, or after commit, is fine."""

    def close(self) -> None:
        """The same as `abort`."""
        self.abort()


class Readable(Protocol):
    """What shards are made from: objects that can be listed, described and read.

    All methods may be called from many threads.
    """

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
        with self.open(key, offset=offset, length=length, if_match=if_match) as reader:
            return b"".join(reader)


class Store(Readable, Protocol):
    """A bucket and prefix, or a directory. All methods may be called from many threads.

    A store holds nothing that has to be closed: connections belong to the process.
    """

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
