"""A stream of many small pieces, written in large blocks and hashed on the fly."""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate

from larder.store.base import Buffer, Closing, Writer

_BLOCK_BYTES = 1 << 20
_BLOCKS = 3


class HashedOutput(Closing):
    """An output that joins pieces into blocks, and hashes and writes the blocks in order.

    As a context manager, the output ends its threads but neither commits nor aborts the writer.
    With ``beside``, one thread hashes and another writes, while the caller reads the next pieces.
    If all cores are busy, the caller does both faster.
    """

    def __init__(self, writer: Writer, *, beside: bool = True) -> None:
        self.bytes = 0
        self.discards = False
        """Whether pieces are only counted, because the shard is not written any more."""
        self._writer = writer
        self._digest = hashlib.sha256()
        self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        self._under_way: deque[tuple[io.BytesIO, Sequence[Future[None]]]] = deque()
        names = ("larder-hash", "larder-write") if beside else ()
        # The threads start with the first block.
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=name) for name in names]

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
        if not self._threads:
            self._block.seek(0)
        elif len(self._under_way) < _BLOCKS:
            self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        else:
            self._block = self._done()

    def _submit(self) -> None:
        """Hash and write the block, or hand it to the threads."""
        block, uses = self._block, (self._digest.update, self._writer.write)
        if not self._threads:
            for use in uses:
                _give(block, use)
            return
        pairs = zip(self._threads, uses, strict=True)
        futures = [thread.submit(_give, block, use) for thread, use in pairs]
        self._under_way.append((block, futures))

    def _done(self) -> io.BytesIO:
        """Wait until the oldest block is hashed and written, and return it emptied."""
        block, futures = self._under_way.popleft()
        for future in futures:
            future.result()
        block.seek(0)
        return block

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=True, cancel_futures=True)


def _give(block: io.BytesIO, use: Callable[[Buffer], object]) -> None:
    with block.getbuffer() as buffer, buffer[: block.tell()] as data:
        use(data)
