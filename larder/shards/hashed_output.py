"""A stream of many small pieces, written in large blocks and hashed on the fly."""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

from larder.store.base import Buffer, Closing, Writer

_BLOCK_BYTES = 1 << 20
_BLOCKS = 3

_UnderWay = tuple[io.BytesIO, Future[None], Future[None]]
"""A block, with the futures of its hashing and its writing."""


class HashedOutput(Closing):
    """An output that joins pieces into blocks, and hashes and writes the blocks in order.

    The output holds up to three blocks of 1 MiB. As a context manager, the output ends its threads
    but neither commits nor aborts the writer. With ``beside``, one thread hashes and another
    writes, while the caller reads the next pieces. If all cores are busy, the caller does both
    faster.
    """

    def __init__(self, writer: Writer, *, beside: bool = True) -> None:
        self.bytes = 0
        self.discards = False
        """Whether pieces are only counted, because the shard is not written any more."""
        self._writer = writer
        self._digest = hashlib.sha256()
        self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        self._blocks = 1
        self._under_way: deque[_UnderWay] = deque()
        self._threads = _Threads.start() if beside else None

    def append(self, pieces: Sequence[Buffer], size_bytes: int) -> None:
        """Append pieces with a total length of ``size_bytes``; raise errors of earlier blocks."""
        self.bytes += size_bytes
        if self.discards:
            return
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
        """Write the rest, and return the hex SHA-256 of everything appended."""
        self._submit()
        while self._under_way:
            self._done()
        return self._digest.hexdigest()

    def _append_over_blocks(self, piece: Buffer) -> None:
        view = memoryview(piece)
        while len(view):
            room = _BLOCK_BYTES - self._block.tell()
            self._block.write(view[:room])
            view = view[room:]
            if self._block.tell() == _BLOCK_BYTES:
                self._next_block()

    def _next_block(self) -> None:
        self._submit()
        if self._threads is None:
            self._block.seek(0)
        elif self._blocks < _BLOCKS:
            self._blocks += 1
            self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        else:
            self._block = self._done()

    def _submit(self) -> None:
        """Hash and write the block, or hand it to the threads."""
        block = self._block
        if self._threads is None:
            self._hash(block)
            self._write(block)
            return
        hashed = self._threads.hashes.submit(self._hash, block)
        written = self._threads.writes.submit(self._write, block)
        self._under_way.append((block, hashed, written))

    def _done(self) -> io.BytesIO:
        """Wait until the oldest block is hashed and written, and return it emptied."""
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

    def close(self) -> None:
        """End the threads."""
        for executor in self._threads or ():
            executor.shutdown(wait=True, cancel_futures=True)


class _Threads(NamedTuple):
    hashes: ThreadPoolExecutor
    writes: ThreadPoolExecutor

    @classmethod
    def start(cls) -> _Threads:
        """Return both executors; their threads start with the first block."""
        names = "larder-hash", "larder-write"
        return cls(*(ThreadPoolExecutor(1, thread_name_prefix=name) for name in names))
