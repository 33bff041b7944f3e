"""An HTTP server of a test's own, for the duration of a ``with`` block."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, and logs nothing."""

    protocol_version = "HTTP/1.1"

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

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
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
def serving(
    handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
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
