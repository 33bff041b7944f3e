"""One connection of the HTTP client: to a server or through a proxy, with or without TLS.

Protocol: RFC 9112; tunnels through proxies: RFC 9110, section 9.3.6.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
import struct
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote, urlsplit

from larder.store.base import Buffer
from larder.store.interrupt import Interrupt

__all__ = [
    "CHUNK_BYTES",
    "HEAD_BYTES",
    "BrokenError",
    "ClosedError",
    "Connection",
    "Server",
    "authorization",
]

HEAD_BYTES = 64 << 10
"""Maximum length of the head of an answer, and of a line between chunks."""

CHUNK_BYTES = 1 << 20
"""At most as much of a body is received at a time."""

_FIELDS = re.compile(r"\r\n([^:\r]+):[ \t]*([^\r]*)")
_CA_BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


class BrokenError(Exception):
    """There is no complete answer: the connection failed, or the answer is not HTTP.

    ``str(error)`` is the cause, as a clause for messages.
    """


class ClosedError(BrokenError):
    """The server closed the connection before the first byte of an answer."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a connection is made to."""

    host: str
    port: int
    tls: bool
    proxy: str | None


class Connection:
    """One connection.

    A socket without TLS blocks, with timeouts of the kernel: with Python's own, every read and
    write would be preceded by a poll, and MSG_WAITALL would not wait.
    """

    def __init__(self, server: Server, connect_seconds: float, silence_seconds: float) -> None:
        try:
            self._socket = _connected(server, connect_seconds)
            tls = isinstance(self._socket, ssl.SSLSocket)
            self._socket.settimeout(silence_seconds if tls else None)
            for option in () if tls else (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval(silence_seconds))
        except (OSError, ssl.SSLError) as error:
            raise BrokenError(_cause(error)) from error
        self._flags = 0 if tls else socket.MSG_WAITALL
        self._interrupt: Interrupt | None = None

    def begin(self, interrupt: Interrupt | None) -> None:
        """A request begins, and ends early if it is interrupted."""
        self._interrupt = interrupt
        if interrupt:
            interrupt.enter(self._socket)

    def end(self) -> None:
        """The request has ended."""
        interrupt, self._interrupt = self._interrupt, None
        if interrupt:
            interrupt.leave(self._socket)

    def exchange(self, pieces: list[Buffer], method: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request; returns status and headers, and what was received after them."""
        broken: OSError | None = None
        try:
            self._send(pieces)
        except OSError as error:  # the server may have answered before it closed
            broken = error
        try:
            return self._head()
        except BrokenError as error:
            if broken is not None and not isinstance(error, ClosedError):
                raise BrokenError(_cause(broken)) from broken
            raise

    def _send(self, pieces: list[Buffer]) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            for piece in pieces:
                self._socket.sendall(piece)
            return
        sent = self._socket.sendmsg(pieces)
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
                continue
            self._socket.sendall(memoryview(piece)[sent:] if sent else piece)
            sent = 0

    def _head(self) -> tuple[int, dict[str, str], bytes]:
        data = b""
        while True:
            more = self.some(first=not data)
            data = data + more if data else more
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > HEAD_BYTES:
                    raise BrokenError("the answer is not HTTP")
                if not more:
                    raise BrokenError("connection closed")
                continue
            status, fields = _parsed(data[:end])
            data = data[end + 4 :]
            if status >= 200:
                return status, fields, data
            if not data:
                continue
            # An interim answer, such as 100 Continue, and the beginning of the next one.
            end = data.find(b"\r\n\r\n")
            if end >= 0:
                status, fields = _parsed(data[:end])
                return status, fields, data[end + 4 :]

    def some(self, *, first: bool = False) -> bytes:
        """What has arrived, at least a byte; empty if the server has closed the connection."""
        try:
            data = self._socket.recv(HEAD_BYTES)
        except OSError as error:
            if first and isinstance(error, ConnectionError):
                raise ClosedError(_cause(error)) from error
            raise BrokenError(_cause(error)) from error
        if first and not data:
            raise ClosedError("connection closed")
        return data

    def receive(self, size_bytes: int) -> bytes:
        """Up to ``size_bytes``, in as few pieces as possible; empty at the end."""
        try:
            data = self._socket.recv(min(size_bytes, CHUNK_BYTES), self._flags)
        except OSError as error:
            if self._interrupt:
                self._interrupt.check()
            raise BrokenError(_cause(error)) from error
        if self._interrupt and not data:
            self._interrupt.check()
        return data

    def close(self) -> None:
        """Close the connection."""
        self.end()
        self._socket.close()

    def __del__(self) -> None:
        """Close the connection of clients that nothing uses any more."""
        if hasattr(self, "_socket"):
            self._socket.close()


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers; those of the same name are joined with commas."""
    text = head.decode("latin-1")
    version, _, rest = text[:64].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise BrokenError("the answer is not HTTP")
    fields: dict[str, str] = {}
    for name, field in _FIELDS.findall(text):
        name = name.lower()
        fields[name] = f"{fields[name]}, {field}" if name in fields else field
    if version == "HTTP/1.0":
        fields.setdefault("connection", "close")
    return int(rest[:3]), fields


def _connected(server: Server, connect_seconds: float) -> socket.socket:
    """A connection to the server, or through its proxy."""
    host, port = server.host, server.port
    proxy = urlsplit(server.proxy) if server.proxy else None
    if proxy:
        host, port = proxy.hostname or "", proxy.port or (443 if proxy.scheme == "https" else 80)
    plain = socket.create_connection((host, port), timeout=connect_seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if proxy and server.tls:
            _tunnel(plain, server)
        if server.tls:
            return _tls().wrap_socket(plain, server_hostname=server.host)
    except BaseException:
        plain.close()
        raise
    return plain


def _tunnel(plain: socket.socket, server: Server) -> None:
    """Ask a proxy for a connection to the server: RFC 9110, section 9.3.6."""
    target = f"{server.host}:{server.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    lines += authorization(server.proxy)
    plain.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    data = b""
    while b"\r\n\r\n" not in data and len(data) < HEAD_BYTES:
        more = plain.recv(1)  # not a byte of what follows
        if not more:
            break
        data += more
    if data.split(b" ")[1:2] != [b"200"]:
        raise ConnectionError("the proxy refuses the connection")


def authorization(proxy: str | None) -> list[str]:
    """The header for a proxy whose URL has a user."""
    parts = urlsplit(proxy or "")
    if not parts.username:
        return []
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]


@cache
def _tls_context(_pid: int, *bundles: str | None) -> ssl.SSLContext:
    named = next(filter(None, bundles), None)
    if named:
        return ssl.create_default_context(
            cafile=None if os.path.isdir(named) else named,
            capath=named if os.path.isdir(named) else None,
        )
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:  # an image without certificates
        try:
            from botocore.httpsession import get_cert_path

            context.load_verify_locations(get_cert_path(True))
        except ImportError:
            pass
    return context


def _tls() -> ssl.SSLContext:
    return _tls_context(os.getpid(), *map(os.environ.get, _CA_BUNDLES))


def _timeval(seconds: float) -> bytes:
    """A ``struct timeval``."""
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1e6))


def _cause(error: OSError) -> str:
    """Why there is no answer, as a clause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "the certificate is not trusted"
    causes: tuple[tuple[type[OSError], str], ...] = (
        (ConnectionRefusedError, "connection refused"),
        (ConnectionResetError, "connection reset"),
        (BrokenPipeError, "connection closed"),
        (socket.gaierror, "the host name cannot be resolved"),
        (TimeoutError, "no answer in time"),
        (BlockingIOError, "no answer in time"),
        (ssl.SSLWantReadError, "no answer in time"),
        (ssl.SSLWantWriteError, "no answer in time"),
    )
    return next((text for kind, text in causes if isinstance(error, kind)), "the connection broke")
