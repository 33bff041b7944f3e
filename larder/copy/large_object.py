"""A large object, copied in parts by several threads."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import google_crc32c

from larder.copy.allowance import CopyLimits
from larder.copy.proof import (
    Content,
    CopiedObject,
    ObjectCopy,
    crc32c_of,
    known_md5,
    prove,
    removed,
)
from larder.copy.uploads import RESUME_BYTES
from larder.errors import LarderError, RetryableError
from larder.manifest.digest import combined_crc32c, format_crc32c
from larder.store.base import ObjectInfo, Reader, Upload, UploadedPart
from larder.store.etags import are_equal, changed, etag_of_parts
from larder.store.interrupt import INTERRUPTED

_MOST_PARTS = 10_000
_MIB = 1 << 20
_SERVER_PART_BYTES = 256 * _MIB


@dataclass(eq=False)
class LargeObject:
    """One large object in progress. Many threads may copy its parts.

    ``advance`` reports the progress of the batch, and raises an error if the batch is stopped.
    ``by_server``: the server copies the parts.
    """

    way: ObjectCopy
    limits: CopyLimits
    advance: Callable[..., None]
    by_server: bool = False

    def __post_init__(self) -> None:
        self._info = info = self.way.info
        self.moved_bytes = 0
        """Number of bytes reported as moved."""
        self._records = self.limits.uploads if info.size_bytes > RESUME_BYTES else None
        part_bytes = _SERVER_PART_BYTES if self.by_server else self.limits.part_bytes
        least = -(-info.size_bytes // _MOST_PARTS)
        self._part_bytes = max(part_bytes, -(-least // _MIB) * _MIB)
        self.numbers = range(1, -(-info.size_bytes // self._part_bytes) + 1)
        """Numbers of the parts."""
        self._began = threading.Event()
        self._lock = threading.Lock()
        self._upload: Upload | None = None
        self._committing = False
        self._parts: dict[int, UploadedPart] = {}
        self._left: Iterator[int] = iter(self.numbers)
        self._listed = info
        self._md5: str | None = None
        self._order: _OrderedMd5 | None = None

    def begin(self) -> None:
        """Start the upload, at a target that has uploads."""
        try:
            self.advance()
            self._listed = self.way.source.head(self._info.key)
            # A report may list no etag: then the same size is enough.
            same = not self._info.etag or are_equal(self._listed.etag, self._info.etag)
            if not same or self._listed.size_bytes != self._info.size_bytes:
                raise changed(self.way.where, self._info.size_bytes, self._listed.size_bytes)
            self._md5 = known_md5(self.way.source, self._listed.etag)
            self._upload = self._continued() or self.way.target.begin_upload(
                self.way.key, like=self._listed, md5=self._md5
            )
            assert self._upload is not None, "the target has uploads"
            self._left = iter([number for number in self.numbers if number not in self._parts])
            resumed = bool(self._parts)
            if self._hashes(self._upload) and not resumed and not self.by_server:
                self._order = _OrderedMd5(len(self.numbers))
        finally:
            self._began.set()

    def _hashes(self, upload: Upload) -> bool:
        """Whether the MD5 of the bytes read may prove the copy, by one of the two etags."""
        return (upload.whole_md5 is False) == bool(self._md5)

    def _continued(self) -> Upload | None:
        """Return the upload that an earlier run has left, if the store still has it."""
        record = self._records and self._records.find(self._info, self.way.key, self._part_bytes)
        if not record:
            return None
        upload = self.way.target.begin_upload(
            self.way.key, like=self._listed, md5=self._md5, resume=record.upload
        )
        etags = upload.sent() if upload else None
        if upload is None or etags is None:
            return None
        self._parts = {
            number: UploadedPart(number, self._place(number)[1], etag, None, proved=False)
            for number in self.numbers
            if (etag := etags.get(number)) and record.etags.get(number) == etag
        }
        self._moved(sum(part.size_bytes for part in self._parts.values()))
        return upload

    def copy_part(self) -> CopiedObject | None:
        """Copy the next part, if one is left; return the copy once it is complete and verified.

        After an error, other parts are not copied.
        """
        self._began.wait()
        upload = self._upload
        if upload is None:
            return None
        try:
            self.advance()
            self._send(upload)
            with self._lock:
                complete = len(self._parts) == len(self.numbers)
                if self._upload is None or self._committing or not complete:
                    return None
                self._committing = True
            parts = [self._parts[number] for number in self.numbers]
            copy = self._verified(upload, parts, upload.commit(parts))
            if self._records:
                self._records.remove(self.way.key)
            return copy
        except LarderError as error:
            if error.code != INTERRUPTED:
                self.end(keep=isinstance(error, RetryableError))
            raise

    def _send(self, upload: Upload) -> None:
        part = self._send_copy(upload) if self.by_server else self._send_bytes(upload)
        if part is None:
            return
        with self._lock:
            if self._upload is None:
                return
            self._parts[part.number] = part
            parts = tuple(self._parts.values())
        self._moved(part.size_bytes)
        if self._records and self._records.due(self.way.key, part.size_bytes):
            self._records.save(self._info, self.way.key, self._part_bytes, upload.id, parts)

    def _next(self) -> tuple[int, int, int] | None:
        """Take the next part: its number, offset and length."""
        with self._lock:
            number = next(self._left, None)
        return None if number is None else (number, *self._place(number))

    def _place(self, number: int) -> tuple[int, int]:
        """Offset and length of a part."""
        offset = (number - 1) * self._part_bytes
        return offset, min(self._part_bytes, self._info.size_bytes - offset)

    def _moved(self, size_bytes: int) -> None:
        self.moved_bytes += size_bytes
        self.advance(bytes=size_bytes)

    def _send_copy(self, upload: Upload) -> UploadedPart | None:
        place = self.way.source.features.place
        assert place is not None, "the server can copy"
        if (part := self._next()) is None:
            return None
        number, offset, length = part
        return upload.send_copy(number, place, self._listed, offset, length)

    def _send_bytes(self, upload: Upload) -> UploadedPart | None:
        # A part gets its number once it has memory, so earlier parts have memory, and will end.
        memory = _PartMemory(self.limits, self._part_bytes)
        try:
            if (part := self._next()) is None:
                return None
            number, offset, length = part
            self.advance()
            with self.way.source.open(
                self._info.key, offset=offset, length=length, if_match=self._listed.etag
            ) as reader:
                data, crc32c = _received(reader, memory.buffer)
            if len(data) != length:
                raise changed(self.way.where, self._info.size_bytes, offset + len(data))
            if self._order and self._hashes(upload):
                self._order.add(number, data, memory)
            elif self._order:
                self._order.give_up()
            return upload.send(number, [data], crc32c)
        except BaseException:
            if self._order:
                self._order.give_up()
            raise
        finally:
            memory.release()

    def _verified(
        self, upload: Upload, parts: list[UploadedPart], written: ObjectInfo
    ) -> CopiedObject:
        checksum = None
        checksums = [(part.crc32c, part.size_bytes) for part in parts if part.crc32c is not None]
        if len(checksums) == len(parts):
            checksum = format_crc32c(combined_crc32c(checksums))
        target = self.way.target
        if written.size_bytes != self._info.size_bytes:
            raise removed(target, written, f"the copy has {written.size_bytes:,} bytes")
        kept = crc32c_of(self._listed.checksum)
        if checksum and kept and kept != checksum:
            raise removed(target, written, f"{checksum} was read, but the source keeps {kept}")
        read_md5 = self._order.hexdigest() if self._order else None
        content = Content(self._md5, self._listed.checksum, read_md5, checksum)
        etag = etag_of_parts([part.etag for part in parts])
        proved = all(part.proved for part in parts) and written.etag == etag
        # The server compared no part, so an etag that is not this MD5 has to be explained.
        verify = "digest" if read_md5 and upload.whole_md5 else self.limits.verify
        return prove(
            self.way, written, content, verify=verify, stored_as_sent=proved, ready=self.advance
        )

    def end(self, *, keep: bool) -> None:
        """Stop copying, unless the copy is complete; ``keep`` leaves many parts to the next run."""
        with self._lock:
            upload, self._upload = self._upload, None
            parts = tuple(self._parts.values())
        if upload is None:
            return
        if keep and self._records:
            self._records.save(self._info, self.way.key, self._part_bytes, upload.id, parts)
            upload.leave()
            return
        upload.abort()
        if self._records:
            self._records.remove(self.way.key)


def _received(reader: Reader, buffer: memoryview) -> tuple[memoryview, int]:
    """Read a part into a buffer; return its bytes and their CRC32C."""
    filled = crc32c = 0
    for piece in reader:
        data = piece if isinstance(piece, bytes) else bytes(piece)
        crc32c = google_crc32c.extend(crc32c, data)
        buffer[filled : filled + len(data)] = data
        filled += len(data)
    return buffer[:filled], crc32c


class _PartMemory:
    """The memory of a part, until every holder has released it."""

    def __init__(self, limits: CopyLimits, size_bytes: int) -> None:
        self._lent = ExitStack()
        self.buffer = self._lent.enter_context(limits.part_buffer(size_bytes))
        self._holders = 1
        self._lock = threading.Lock()

    def hold(self) -> None:
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
        self._lent.close()


class _OrderedMd5:
    """The MD5 of parts that arrive in any order; each is held until all before it have come."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._waiting: dict[int, tuple[memoryview, _PartMemory]] = {}
        self._next = 1
        self._count = count
        self._ended = False

    def add(self, number: int, part: memoryview, memory: _PartMemory) -> None:
        with self._lock:
            if self._ended:
                return
            memory.hold()
            self._waiting[number] = part, memory
            while self._next in self._waiting:
                data, done = self._waiting.pop(self._next)
                self._md5.update(data)
                done.release()
                self._next += 1

    def give_up(self) -> None:
        """Hold no parts any more, because a part will not come."""
        with self._lock:
            self._ended = True
            for _, memory in self._waiting.values():
                memory.release()
            self._waiting.clear()

    def hexdigest(self) -> str | None:
        """Return the MD5, or None until all parts have come."""
        return self._md5.hexdigest() if self._next > self._count else None
