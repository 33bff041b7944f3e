"""A server that does with its connections whatever a test wants."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

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
