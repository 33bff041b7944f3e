"""Processes that transform images, shared by all batches of this process.

Threads do not scale here: Pillow holds the interpreter lock while it writes a JPEG. The processes
are started as programs of their own, so that a script needs no guard, nothing is pickled, and an
interrupt of the terminal does not reach them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from queue import LifoQueue
from typing import Any

from larder.config.shape import Transform
from larder.errors import FatalError, ObjectError
from larder.jobs.programs import start_program
from larder.store.base import Closing

_lock = threading.Lock()
_shared: dict[int, tuple[TransformPool, int]] = {}


class TransformPool(Closing):
    """Some processes, each started when it is first needed. May be used by many threads."""

    def __init__(self, count: int) -> None:
        self._idle: LifoQueue[_Process | None] = LifoQueue()
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
        request = {
            "ext": ext,
            "bytes": len(data),
            "where": where,
            "max_pixels": max_pixels,
            "transform": asdict(transform.options()),
        }
        process = self._idle.get()
        try:
            process = process or _Process()
            answer, result = process.ask(request, data)
        except OSError as error:
            if process is not None:
                process.close()
            process = None
            message, hint = "a process that transforms images ended", "run again to continue"
            raise FatalError("run.failed", message, where=where, hint=hint) from error
        except BaseException:
            if process is not None:
                process.close()  # what it would say next is not known
            process = None
            raise
        finally:
            self._idle.put(process)
        if answer.get("memory"):
            raise MemoryError(where)
        if code := answer.get("code"):
            raise ObjectError(code, answer["message"], where=where, hint=answer["hint"])
        return result

    def close(self) -> None:
        """No thread may be waiting for a process."""
        for _ in range(self._count):
            process = self._idle.get()
            if process is not None:
                process.close()
        for _ in range(self._count):
            self._idle.put(None)


class _Process:
    def __init__(self) -> None:
        self._process = start_program("larder.shards.images.worker")

    def ask(self, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Send a request, and wait for its result; OSError if the process ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it has pipes"
        assert stdout is not None, "it has pipes"
        stdin.write(json.dumps(request).encode() + b"\n" + data)
        stdin.flush()
        line = stdout.readline()
        if not line.endswith(b"\n"):
            raise BrokenPipeError("no result")
        answer = json.loads(line)
        result = stdout.read(answer["bytes"])
        if len(result) < answer["bytes"]:
            raise BrokenPipeError("no whole result")
        return answer, result

    def close(self) -> None:
        """End it: it holds nothing that would be lost."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "it has pipes"
            with suppress(OSError):  # what was not sent is not needed
                pipe.close()
        self._process.wait()


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
