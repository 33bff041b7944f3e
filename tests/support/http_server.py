"""An HTTP server of a test's own, for the duration of a ``with`` block."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from urllib.parse import parse_qsl, urlsplit

Serve = Callable[[socket.socket], None]


@dataclass
class Ask:
    """A request; the names of headers are lower-case.

    ``target`` is the path and query as they were sent, ``port`` that of the client's connection.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    target: str = ""
    port: int = 0

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Say:
    """An answer; ``cut`` closes the connection after so many bytes of the body.

    A header with line breaks is sent as several.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, and logs nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms for the client to acknowledge its head

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """Ends its connections with itself: a thread of one that is kept holds all that it was sent."""

    daemon_threads = True

    def __init__(self, handler: type[BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def server_close(self) -> None:
        super().server_close()
        for connection in self._connections:
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        pass  # of a connection that the client ended


@contextmanager
def serving(handler: type[BaseRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve on any port of 127.0.0.1; the URL."""
    server = _Server(handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def served(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve by a function that is called with each connection, in a thread; the port."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the client may close the connection
                serve(self.request)

    with serving(Handler, context) as url:
        yield int(url.rpartition(":")[2])


@contextmanager
def answering(answer: Callable[[Ask], Say]) -> Iterator[str]:
    """Serve what a function answers; the URL."""

    class Handler(QuietHandler):
        def reply(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            headers = {name.lower(): text for name, text in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            port = self.client_address[1]
            said = answer(Ask(self.command, parts.path, query, headers, body, self.path, port))
            self.close_connection = said.cut is not None
            self.send_response_only(said.status)
            for name, text in said.headers.items():
                for line in text.split("\n"):
                    self.send_header(name, line)
            if said.status != 204 and "Content-Length" not in said.headers:
                self.send_header("Content-Length", str(len(said.body)))
            with suppress(ConnectionError):  # a client that was stopped
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else said.body[: said.cut])

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = reply  # noqa: N815

    with serving(Handler) as url:
        yield url
