"""A stream of many small pieces, written in large blocks and hashed on the fly."""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from larder.store.base import Writer

__all__ = ["HashedOutput"]

_BLOCK_BYTES = 1 << 20
_BLOCKS = 3


class HashedOutput:
    """Joins pieces into blocks that a separate thread hashes and writes, in order.

    Both release the interpreter lock, so that the caller can read the next pieces in the meantime.
    Holds three blocks of 1 MiB. As a context manager, it ends its thread; it neither commits nor
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
        self._under_way: deque[Future[io.BytesIO]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="larder-write")

    def append(self, pieces: Sequence[bytes], size_bytes: int) -> None:
        """Append pieces with a total length of ``size_bytes``.

        Raises:
            LarderError: The writer's error for an earlier block.
        """
        self.bytes += size_bytes
        if self._block.tell() + size_bytes < _BLOCK_BYTES:
            self._block.writelines(pieces)
            return
        for piece in pieces:
            self._append_over_blocks(piece)

    def finish(self) -> str:
        """Write the rest, and return the hex SHA-256 of everything appended.

        Raises:
            LarderError: The writer's error.
        """
        self._under_way.append(self._thread.submit(self._put, self._block))
        while self._under_way:
            self._under_way.popleft().result()
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
        self._under_way.append(self._thread.submit(self._put, self._block))
        if self._blocks < _BLOCKS:
            self._blocks += 1
            self._block = io.BytesIO(bytes(_BLOCK_BYTES))
        else:
            self._block = self._under_way.popleft().result()

    def _put(self, block: io.BytesIO) -> io.BytesIO:
        with block.getbuffer() as buffer, buffer[: block.tell()] as data:
            self._digest.update(data)
            self._writer.write(data)
        block.seek(0)
        return block

    def __enter__(self) -> HashedOutput:
        """Return the output itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
