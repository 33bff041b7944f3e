"""A proxy that delays every answer: what a server far away feels like.

``python -m benchmarks.copying.delay SERVER_PORT SECONDS`` prints its own port, and runs until it is
killed. Bytes to the server are passed on at once, bytes from it after the delay.
"""

from __future__ import annotations

import asyncio
import sys

_CHUNK_BYTES = 1 << 18


async def _to_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _to_client(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def take() -> None:
        while True:
            data = await reader.read(_CHUNK_BYTES)
            await waiting.put((loop.time() + seconds, data))
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


async def _serve(server_port: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", server_port)
        try:
            await asyncio.gather(_to_server(reader, to_there), _to_client(there, writer, seconds))
        except OSError:
            pass  # either side closed the connection
        finally:
            to_there.close()
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=_CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
