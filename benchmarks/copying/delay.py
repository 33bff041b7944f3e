"""A proxy that delays every answer: what a server far away feels like.

``python -m benchmarks.copying.delay SERVER_PORT SECONDS [BYTES_PER_SECOND]`` prints its own port,
and runs until it is killed. Bytes to the server are passed on at once, bytes from it after the
delay, and over all connections no more in a second than is given.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

from tests.support.servers import S3Server

_CHUNK_BYTES = 1 << 16


@contextmanager
def delayed(server: S3Server, seconds: float, bytes_per_second: float = inf) -> Iterator[S3Server]:
    """A server behind such a proxy."""
    command = [sys.executable, "-m", "benchmarks.copying.delay", str(server.port), str(seconds)]
    command += [str(bytes_per_second)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            port = int(proxy.stdout.readline())
            yield replace(server, endpoint=f"http://127.0.0.1:{port}")
        finally:
            proxy.kill()


@dataclass(slots=True)
class _Link:
    """What all connections share: when it is free again."""

    seconds: float
    bytes_per_second: float
    free: float = 0.0

    def due(self, size_bytes: int) -> float:
        now = asyncio.get_running_loop().time()
        self.free = max(self.free, now) + size_bytes / self.bytes_per_second
        return self.free + self.seconds


async def _to_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _to_client(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link
) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def take() -> None:
        while True:
            data = await reader.read(_CHUNK_BYTES)
            await waiting.put((link.due(len(data)), data))
            if not data:
                return

    taking = asyncio.create_task(take())
    while True:
        due, data = await waiting.get()
        if not data:
            break
        await asyncio.sleep(due - loop.time())
        writer.write(data)
        await writer.drain()
    await taking


async def _serve(server_port: int, link: _Link) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", server_port)
        try:
            await asyncio.gather(_to_server(reader, to_there), _to_client(there, writer, link))
        except OSError:
            pass  # either side closed the connection
        finally:
            to_there.close()
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=_CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), _Link(*map(float, sys.argv[2:]))))
