"""The interfaces of stores: `Readable` for sources, and `Store`, which can also be written.

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

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

from larder.store.etag_trust import EtagTrust

if TYPE_CHECKING:
    from typing import Self, Unpack

Buffer = bytes | bytearray | memoryview

Contents = Generator[bytes, None, None]

PIECE_BYTES = 1 << 20
"""Bytes of a bucket object's content received in one turn."""

AHEAD = 8
"""Requests for small objects that keep a connection to a distant store busy."""

UNKNOWN_US = 253_402_300_799_000_000
"""Modification time of an object whose store gives none: in the year 9999, so never old."""

KEPT_HEADERS = ("cache-control", "content-disposition", "content-encoding", "content-language")
"""Headers of a bucket object, besides its content type, that its copies keep."""


class ObjectInfo(NamedTuple):
    """The description of one object, from a listing or a HEAD request.

    A tuple, because listings make millions. Stores set an optional field if no extra request is
    needed: a listing has the storage class, for example, but only `Readable.head` and
    `Readable.open` have metadata.

    Attributes:
        key: Relative to the store.
        etag: Opaque, without quotes; changes when the content does. It is the MD5 of the content
            only if the store says so (`Features.etag_is_md5`) and it has 32 hex digits.
        modified_us: Microseconds since 1970 UTC; `UNKNOWN_US` if unknown.
        storage_class: Such as ``GLACIER``; empty for the standard class.
        checksum: ``ALGORITHM:HEX`` of the content, if the store keeps one.
        generation: The generation in GCS, the version ID in S3.
        metadata: User metadata, by lower-case name.
        headers: The object's headers among `KEPT_HEADERS`.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int
    storage_class: str = ""
    checksum: str | None = None
    generation: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None

    @property
    def clock_us(self) -> int:
        """The time to measure the ages of other objects by; 0 if unknown: then no object is old."""
        return 0 if self.modified_us == UNKNOWN_US else self.modified_us


@dataclass(frozen=True, slots=True)
class BucketPrefix:
    """The place of a store's objects, for stores that can copy from each other.

    Attributes:
        provider: ``s3`` or ``gs``.
        server: URL of the server; empty for AWS and Google Cloud.
        payer: The project that pays for reading there, empty for the reader's own; None if the
            bucket's owner pays.
    """

    provider: str
    server: str
    bucket: str
    prefix: str
    payer: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Features:
    """Capabilities in which stores differ.

    Attributes:
        etag_is_md5: An etag of 32 hex digits is the MD5 of the content, unless KMS or similar
            encryption is used.
        local_path: Objects are files that can be opened by path.
        reads_ahead: `Readable.get_each` has several requests in progress.
        uploads: Objects can be written in parts, by `Store.begin_upload`.
        etag_trust: This process's knowledge about the etags; None learns nothing.
        place: Place of the objects; None if their bytes have to pass through this store, which may
            alter them.
    """

    etag_is_md5: bool
    local_path: bool = False
    reads_ahead: bool = False
    uploads: bool = False
    etag_trust: EtagTrust | None = field(default=None, compare=False, repr=False)
    place: BucketPrefix | None = field(default=None, compare=False)


class Closing(Protocol):
    """A resource that a ``with`` block closes, however the block ends."""

    def close(self) -> None:
        """Release all resources; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader(Closing, Protocol):
    """An object being read, once from front to back. ``info`` describes it as it was opened."""

    info: ObjectInfo

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the bytes, in buffers of any size.

        Raises:
            PreconditionError: The object changed while it was read (if the store can detect that).
            ObjectError: ``object.truncated``: fewer bytes than announced.
            RetryableError: The connection broke.
        """


class Writer(Closing, Protocol):
    """An object being written as a stream. It is invisible until `commit` returns.

    As a context manager, it aborts unless `commit` was called.
    """

    def write(self, data: Buffer) -> None:
        """Append bytes. The caller may reuse the buffer afterwards."""

    def commit(self) -> ObjectInfo:
        """Make the object visible, durable and complete, in one step."""

    def abort(self) -> None:
        """Discard the written bytes; may be called twice, or after `commit`."""

    def close(self) -> None:
        self.abort()


class UploadedPart(NamedTuple):
    """A part of an `Upload`.

    Attributes:
        number: From 1.
        crc32c: CRC32C of the bytes; None if they did not pass through this machine.
        proved: Whether the store's answer proves that the store has exactly these bytes.
    """

    number: int
    size_bytes: int
    etag: str
    crc32c: int | None
    proved: bool


class Upload(Closing, Protocol):
    """An object being written in parts, which threads send in any order.

    It is invisible until `commit` returns. As a context manager, it aborts unless `commit` or
    `leave` was called. With the ``id``, a later process can continue.
    """

    id: str

    @property
    def whole_md5(self) -> bool | None:
        """Whether the etag of the object will be the MD5 of its content; None if unknown."""

    def sent(self) -> Mapping[int, str] | None:
        """Return the etags of the parts in the store, by number; None if the upload is gone."""

    def send(self, number: int, pieces: Sequence[Buffer], crc32c: int) -> UploadedPart:
        """Send a part, numbered from 1, whose bytes have this CRC32C."""

    def send_copy(
        self, number: int, source: BucketPrefix, info: ObjectInfo, offset: int, length: int
    ) -> UploadedPart:
        """Have the server copy a range of an object at another place as a part."""

    def commit(self, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Join the parts, given in order, into a visible, durable and complete object."""

    def abort(self) -> None:
        """Discard the parts; may be called twice, or after `commit`."""

    def leave(self) -> None:
        """Leave the parts for a later process."""

    def close(self) -> None:
        self.abort()


def span_bytes(size_bytes: int, offset: int, length: int | None) -> int:
    """Return the length of a range in an object of this size; None is the rest of the object."""
    if offset >= size_bytes:
        return 0
    rest = size_bytes - offset
    return rest if length is None else min(length, rest)


class ReadOptions(TypedDict, total=False):
    """Options of a read: a range of bytes, and the etag that the object has to have."""

    offset: int
    length: int | None
    if_match: str | None


class WriteOptions(TypedDict, total=False):
    """Options of a write. With a condition, `larder.store.retry` accepts an existing object with
    the same bytes.

    Attributes:
        if_match: Write only if the object has this etag.
        like: Object to copy content type, metadata and headers from, if the store keeps them.
        md5: MD5 of the content in hex, if known; some stores compare it.
        sync: False if the object need not be durable before `Store.sync` is called, which is faster
            for many files.
    """

    if_absent: bool
    if_match: str | None
    like: ObjectInfo | None
    md5: str | None
    sync: bool


class UploadOptions(TypedDict, total=False):
    """Options of an `Upload`; ``resume`` is the `Upload.id` of one to continue, and ``md5`` is of
    the whole content.
    """

    like: ObjectInfo | None
    md5: str | None
    resume: str | None


class Readable(Protocol):
    """Objects that can be listed, described and read. All methods may be called from many threads.

    A store need not be closed: connections belong to the process.
    """

    @property
    def url(self) -> str:
        """``s3://bucket/prefix/`` or ``file:///dir/``, without secrets."""

    @property
    def features(self) -> Features: ...

    def region(self) -> str:
        """Return the bucket's region at AWS or Google Cloud; empty if unknown, or elsewhere.

        Call this after other calls have succeeded: they fail in another region.
        """
        return ""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Yield pages of the objects whose keys begin with ``prefix``, in byte order of the keys.

        ``prefix`` is a string prefix, not a folder. A page is never empty. A listing either
        ends normally and is complete, or raises an error.
        """

    def head(self, key: str) -> ObjectInfo: ...

    def open(self, key: str, **options: Unpack[ReadOptions]) -> Reader:
        """Open an object, or a range of its bytes, for one pass."""

    def get(self, key: str, **options: Unpack[ReadOptions]) -> bytes:
        """Return the bytes of an object or a range; they must fit in memory."""
        with self.open(key, **options) as reader:
            return b"".join(reader)

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        """Yield the bytes of several objects in order, or raise the error that `get` would raise.

        The first error ends the iteration. Close the generator, or read it to its end. Use it for
        small objects. Wrappers need not forward the call: the default calls their own `get`.

        Args:
            objects: Key, size in bytes and etag (or empty) of each object, as listed. The size may
                be wrong by less than `PIECE_BYTES`.
            ahead: Maximum number of requests in progress, in stores that send several at once.
        """
        del ahead
        for key, _, etag in objects:
            yield self.get(key, if_match=etag or None)


class Store(Readable, Protocol):
    """A bucket and prefix, or a directory, that may also be written."""

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        """Write a complete object in one step: visible and durable on return.

        The result has a ``checksum`` only if the store has verified one that was sent.
        """

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        """Start writing an object as a stream, with multipart upload if the store has it."""

    def begin_upload(self, key: str, **options: Unpack[UploadOptions]) -> Upload | None:
        """Start writing an object in parts; None if this store does not support that."""
        del key, options
        return None

    def abort_uploads(self, older_seconds: float, kept: Collection[str] = ()) -> int:
        """Abort uploads begun over ``older_seconds`` ago by the store's clock; return their number.

        ``kept`` holds the IDs of uploads that a run may continue; these stay. Stores without
        uploads in parts do nothing.
        """
        del older_seconds, kept
        return 0

    def sync(self) -> None:
        """Make durable all objects that this process has written with ``sync=False``."""
        return

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """Copy an object on the servers, so that its bytes do not pass through this machine.

        The object is copied on the condition that its etag has not changed. Its content type and
        metadata are kept. Return None if this store cannot copy from ``source``. The caller
        verifies the copy: some servers report a copy that they have not made.
        """
        del source, info, key
        return None

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """Write a local file as an object, in upload parts if it is large."""

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Remove an object, if it exists; many S3-compatible servers ignore ``if_match``."""
