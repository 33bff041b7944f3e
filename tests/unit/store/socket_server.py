"""A server that does with its connections whatever a test wants."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler

from tests.support.http_server import serving

Serve = Callable[[socket.socket], None]


@contextmanager
def served(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server of which each connection is handled by a function, in a thread; its port."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the client may close the connection
                serve(self.request)

    with serving(Handler, context) as url:
        yield int(url.rpartition(":")[2])
