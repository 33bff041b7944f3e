"""A stream of many small pieces, written in large blocks and hashed on the fly."""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from types import TracebackType

from larder.store.base import Writer

__all__ = ["HashedOutput"]

_BLOCK_BYTES = 1 << 20
_BLOCKS = 3

_UnderWay = tuple[io.BytesIO, Future[None], Future[None]]
"""A block, and when it is hashed and written."""


class HashedOutput:
    """Joins pieces into blocks that one thread hashes and another writes, in order.

    Both release the interpreter lock, so that the caller can read the next pieces in the meantime.
    Holds three blocks of 1 MiB. As a context manager, it ends its threads; it neither commits nor
    aborts the writer.

    Args:
        writer: Where the blocks go.
    """

    def __init__(self, writer: Writer) -> None:
        self.bytes = 0
        self._writer = writer
        self._digest = hashlib.sha256()
        self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        self._blocks = 1
        self._under_way: deque[_UnderWay] = deque()
        self._hashes = ThreadPoolExecutor(1, thread_name_prefix="larder-hash")
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="larder-write")

    def append(self, pieces: Sequence[bytes], size_bytes: int) -> None:
        """Append pieces with a total length of ``size_bytes``.

        Raises:
            LarderError: The writer's error for an earlier block.
        """
        self.bytes += size_bytes
        if self._block.tell() + size_bytes < _BLOCK_BYTES:
            self._block.writelines(pieces)
            return
        ends = list(accumulate(map(len, pieces)))
        first = done = 0
        while first < len(pieces):
            last = bisect_left(ends, done + _BLOCK_BYTES - self._block.tell())
            self._block.writelines(pieces[first:last])
            if last < len(pieces):
                self._append_over_blocks(pieces[last])
                done = ends[last]
            first = last + 1

    def finish(self) -> str:
        """Write the rest, and return the hex SHA-256 of everything appended.

        Raises:
            LarderError: The writer's error.
        """
        self._submit()
        while self._under_way:
            self._done()
        return self._digest.hexdigest()

    def _append_over_blocks(self, piece: bytes) -> None:
        view = memoryview(piece)
        while len(view):
            room = _BLOCK_BYTES - self._block.tell()
            self._block.write(view[:room])
            view = view[room:]
            if self._block.tell() == _BLOCK_BYTES:
                self._next_block()

    def _next_block(self) -> None:
        self._submit()
        if self._blocks < _BLOCKS:
            self._blocks += 1
            self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        else:
            self._block = self._done()

    def _submit(self) -> None:
        """Have the block hashed and written."""
        block = self._block
        hashed = self._hashes.submit(self._hash, block)
        self._under_way.append((block, hashed, self._writes.submit(self._write, block)))

    def _done(self) -> io.BytesIO:
        """The oldest block under way, empty, as soon as it is hashed and written."""
        block, hashed, written = self._under_way.popleft()
        written.result()
        hashed.result()
        block.seek(0)
        return block

    def _hash(self, block: io.BytesIO) -> None:
        with block.getbuffer() as buffer, buffer[: block.tell()] as data:
            self._digest.update(data)

    def _write(self, block: io.BytesIO) -> None:
        with block.getbuffer() as buffer, buffer[: block.tell()] as data:
            self._writer.write(data)

    def __enter__(self) -> HashedOutput:
        """Return the output itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the threads."""
        for executor in (self._hashes, self._writes):
            executor.shutdown(wait=True, cancel_futures=True)
