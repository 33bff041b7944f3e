"""Servers that do with their connections, or with requests, whatever a test wants."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Serve = Callable[[socket.socket], None]


@contextmanager
def served(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server of which each connection is handled by a function, in a thread."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    closing = threading.Event()

    def handle(one: socket.socket) -> None:
        with one, suppress(OSError):  # the client may close the connection
            if context is None:
                serve(one)
                return
            with context.wrap_socket(one, server_side=True) as wrapped:
                serve(wrapped)

    def accept() -> None:
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            if closing.is_set():
                one.close()
                return
            threads.append(threading.Thread(target=handle, args=(one,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listening.getsockname()[1]
    finally:
        closing.set()
        with socket.create_connection(listening.getsockname()):
            pass
        accepting.join()
        listening.close()
        for thread in threads:
            thread.join()


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, and writes no log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def http_served(handler: type[QuietHandler]) -> Iterator[str]:
    """The address of a server of HTTP requests."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
