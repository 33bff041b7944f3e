"""Processes that transform images, shared by all batches of this process.

Threads do not scale here: Pillow holds the interpreter lock while it writes a JPEG.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import LifoQueue

from larder.config.shape import Transform
from larder.errors import FatalError
from larder.jobs.processes import Process
from larder.shards.images.transform import encode_again
from larder.store.base import Closing

_lock = threading.Lock()
_shared: dict[int, tuple[TransformPool, int]] = {}


class TransformPool(Closing):
    """Some processes, each started when it is first needed. May be used by many threads."""

    def __init__(self, count: int) -> None:
        self._idle: LifoQueue[Process | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self._count = count

    def encode_again(
        self, ext: str, data: bytes, transform: Transform, *, where: str, max_pixels: int
    ) -> bytes:
        """See `larder.shards.images.transform.encode_again`; waits for a process that is idle.

        Raises:
            FatalError: ``run.failed``: the process was killed.
        """
        process = self._idle.get()
        try:
            process = process or Process()
            result: bytes = process.call(
                encode_bytes, ext, data, transform.options(), where=where, max_pixels=max_pixels
            )
        except FatalError as error:
            raise FatalError(error.code, error.message, where=where, hint=error.hint) from error
        else:
            return result
        finally:
            if process is not None and not process.answered:
                process.close()
                process = None
            self._idle.put(process)

    def close(self) -> None:
        """No thread may be waiting for a process."""
        for _ in range(self._count):
            process = self._idle.get()
            if process is not None:
                process.close()
        for _ in range(self._count):
            self._idle.put(None)


def encode_bytes(
    ext: str, data: bytes, transform: Transform, *, where: str, max_pixels: int
) -> bytes:
    """`encode_again`, for an image in memory."""
    return encode_again(ext, io.BytesIO(data), transform, where=where, max_pixels=max_pixels)


@contextmanager
def shared_pool(count: int) -> Iterator[TransformPool | None]:
    """The processes of this process, started by the first and ended by the last that uses them.

    None if ``count`` is 1, as the calling threads do as well.
    """
    if count == 1:
        yield None
        return
    with _lock:
        pool, users = _shared.get(count) or (TransformPool(count), 0)
        _shared[count] = pool, users + 1
    try:
        yield pool
    finally:
        with _lock:
            pool, users = _shared.pop(count)
            if users > 1:
                _shared[count] = pool, users - 1
        if users == 1:
            pool.close()
