"""HTTP/1.1 for object stores, by libcurl: kept connections, TLS, proxies, and no copies of bodies.

A request is a libcurl transfer that the calling thread drives, waiting in short turns. If the work
is stopped (`larder.store.interrupt`), the request soon ends with an error. Only libcurl touches
sockets and TLS. The first mebibyte of an answer, which is all of a small object, is received before
`Http.request` returns; the rest on demand.

Only GET and HEAD requests are repeated here, if a kept connection turns out to be closed. A request
that may change something is sent once: the caller decides about a repetition.

libcurl: https://curl.se/libcurl/c/easy_setopt_options.html
"""

from __future__ import annotations

import errno
import os
import re
import select
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from larder.bounds import DOCUMENT_BYTES
from larder.disk import SYSTEM_LIMITS, limit_error
from larder.errors import FatalError
from larder.forking import leave_to_parent
from larder.store.base import PIECE_BYTES, Buffer, Closing
from larder.store.interrupt import interrupted_by
from larder.store.libcurl import pycurl
from larder.units import format_bytes

_MOST_PIECES = 16

_RECEIVE_BYTES = 64 << 10
_SEND_BYTES = 256 << 10
_TURN_SECONDS = 0.2
_RECHECK_SECONDS = 0.005
_CA_BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS
)
_UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_NOTHING = BytesIO().read
_NEVER_CHANGING = {"GET", "HEAD"}


class BrokenError(Exception):
    """A missing or incomplete answer: the connection failed, or the answer is not HTTP.

    Attributes:
        final: Whether a repeated request would fail in the same way.
        refused: Whether the server accepts no connections or has no address in the network, and has
            never answered this process. Long repetition is then in vain.
    """

    def __init__(
        self, cause: str, *, hint: str = "", final: bool = False, refused: bool = False
    ) -> None:
        super().__init__(cause)
        self.hint = hint
        self.final = final
        self.refused = refused


class Http:
    """Connections to one server, shared by all threads of the process; a forked child makes others.

    The endpoint may have a path. A request fails if the server neither accepts nor sends a byte for
    ``silence_seconds``.
    """

    def __init__(self, endpoint: str, *, connect_seconds: float, silence_seconds: float) -> None:
        parts = urlsplit(endpoint)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._options = _options(parts, connect_seconds)
        self._silence_seconds = silence_seconds
        self._idle: list[_Transfer] = []
        self.answered = False
        """Whether this server has ever answered."""
        self.host = parts.netloc
        """The value of the Host header."""
        self.path = parts.path.rstrip("/")
        """The prefix of every path on the server."""
        _pools.add(self)

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request, and receive the head and the first mebibyte of the answer.

        The target is path and query, percent-encoded. GET and HEAD have no body. `BrokenError` says
        that there is no answer, and ``run.interrupted`` that the work was stopped.
        """
        return self._answer(self._begin(method, target, headers, body))

    def get_each(
        self, requests: Iterable[tuple[str, Mapping[str, str]]], ahead: int
    ) -> Generator[Answer, None, None]:
        """Yield the answers to GET requests with these targets and headers, in order.

        Up to ``ahead`` requests are in progress at once. The first error, raised in its turn, ends
        the iteration. Close the generator, or read it to its end.
        """
        rest, sent = iter(requests), deque[_Transfer]()
        try:
            while True:
                new = [self._begin("GET", *each) for each in islice(rest, ahead - len(sent))]
                sent += new
                _send(new)
                if not sent:
                    return
                yield self._answer(sent.popleft())
        finally:
            for transfer in sent:
                self._return(transfer)

    def _begin(
        self, method: str, target: str, headers: Mapping[str, str], body: Sequence[Buffer] = ()
    ) -> _Transfer:
        try:
            transfer = self._idle.pop()
        except IndexError:
            try:
                transfer = _Transfer(self._options, self._silence_seconds)
            except pycurl.error as error:
                raise (limit_error(error, self._server) or error) from None
        try:
            transfer.begin(method, self._server + target, headers, body)
        except BaseException:
            transfer.close()
            raise
        return transfer

    def _answer(self, transfer: _Transfer) -> Answer:
        try:
            first = transfer.receive()
        except (BrokenError, FatalError) as error:
            self._return(transfer)
            if isinstance(error, BrokenError) and error.refused and self.answered:
                raise BrokenError(str(error)) from error
            raise
        except BaseException:  # such as Ctrl-C, which leaves an unknown state
            transfer.close()
            raise
        self.answered = True
        answer = Answer(self, transfer, first)
        if answer.status == 407:  # Proxy Authentication Required
            answer.close()
            raise _refused(transfer.proxy)
        return answer

    def _return(self, transfer: _Transfer) -> None:
        """Keep a handle for reuse, and its connection unless an answer was left unread."""
        if transfer.pid != os.getpid():
            return
        transfer.end()
        self._idle.append(transfer)


_pools: weakref.WeakSet[Http] = weakref.WeakSet()
_transfers: weakref.WeakSet[_Transfer] = weakref.WeakSet()
_paused: list[_Transfer] = []
_creating = threading.Lock()


def _pause() -> None:
    """Delay a fork until libcurl pauses: the child would wait forever for OpenSSL's locks."""
    _creating.acquire()
    for transfer in list(_transfers):
        transfer.running.acquire()
        _paused.append(transfer)


def _resume() -> None:
    while _paused:
        _paused.pop().running.release()
    _creating.release()


def _forked() -> None:
    """Leave all connections to the parent: closing a copy would end the parent's TLS session."""
    leave_to_parent(list(_transfers))
    for pool in list(_pools):
        pool._idle = []
    _resume()


os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_forked)


class Answer(Closing):
    """An answer. It closes at the end of a ``with`` block, or once the body was read.

    ``headers`` has the values by lower-case name; repeated headers are joined by commas.
    """

    def __init__(self, pool: Http, transfer: _Transfer, first: Sequence[bytes]) -> None:
        self.status, self.headers = _parsed(transfer.head)
        self._pool = pool
        self._transfer: _Transfer | None = transfer
        self._first = first
        if transfer.done:
            self.close()

    @property
    def body(self) -> bytes | None:
        """The whole body, if all of it arrived before any was read; else None."""
        return None if self._transfer else b"".join(self._first)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body in pieces of usually 64 KiB to 1 MiB; libcurl compares its length."""
        pieces, self._first = self._first, ()
        yield from pieces
        while self._transfer is not None:
            try:
                pieces = self._transfer.receive()
            except BaseException:
                self.close()
                raise
            if self._transfer.done:
                self.close()
            yield from pieces

    def read(self, most_bytes: int = DOCUMENT_BYTES) -> bytes:
        """Read the whole body, or raise an error if it is longer than ``most_bytes``."""
        data = self.beginning(most_bytes + 1)
        if len(data) > most_bytes:
            cause = f"the answer has more than {format_bytes(most_bytes)}, which no right one has"
            raise BrokenError(cause, hint="check the endpoint", final=True)
        return data

    def beginning(self, most_bytes: int) -> bytes:
        """Read the first ``most_bytes`` of the body, and stop receiving."""
        pieces, size_bytes = [], 0
        for piece in self:
            pieces.append(piece)
            size_bytes += len(piece)
            if size_bytes >= most_bytes:
                self.close()
                break
        return b"".join(pieces)[:most_bytes]

    def close(self) -> None:
        """Stop receiving; may be called twice."""
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            self._pool._return(transfer)


class _Transfer:
    """A handle of libcurl with its connection: one request at a time, one thread at a time.

    Callbacks avoid Python code where possible: libcurl would swallow a KeyboardInterrupt there.
    """

    def __init__(self, options: Mapping[int, Any], silence_seconds: float) -> None:
        self.running = threading.Lock()
        with _creating:
            self._curl = pycurl.Curl()
            self._multi = pycurl.CurlMulti()
            for option, setting in options.items():
                self._curl.setopt(option, setting)
            _transfers.add(self)
        self._silence_seconds = silence_seconds
        # Host and port without the user; a password may have any character.
        self.proxy = options[pycurl.PROXY].rpartition("@")[2].rpartition("//")[2].rstrip("/")
        self.pid = os.getpid()
        self._added = False
        self._method = ""
        self._uploaded = 0
        self._data: list[bytes] = []
        self.head: list[bytes] = []
        """The header lines of the answer and of interim answers before it."""
        self._curl.setopt(pycurl.WRITEFUNCTION, self._data.append)
        self._curl.setopt(pycurl.HEADERFUNCTION, self.head.append)
        self.done = True

    def begin(
        self, method: str, url: str, headers: Mapping[str, str], body: Sequence[Buffer]
    ) -> None:
        lines = [f"{name}: {text}" if text else f"{name};" for name, text in headers.items()]
        text = "".join(lines)
        if not (text.isascii() and text.isprintable()) and _UNSENDABLE.search(text):
            raise BrokenError("a header has characters that cannot be sent", final=True)
        curl = self._curl
        if method != self._method or method not in _NEVER_CHANGING:
            if body or method in ("PUT", "POST"):
                curl.setopt(pycurl.UPLOAD, 1)
                curl.setopt(pycurl.INFILESIZE_LARGE, sum(map(len, body)))
                curl.setopt(pycurl.READFUNCTION, _reading(body))
            elif method == "HEAD":
                curl.setopt(pycurl.NOBODY, 1)
            else:
                curl.setopt(pycurl.HTTPGET, 1)
            curl.setopt(pycurl.CUSTOMREQUEST, method)
            curl.setopt(pycurl.PREREQFUNCTION, None if method in _NEVER_CHANGING else _once())
        self._method, self._uploaded, self.done = method, 0, False
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.HTTPHEADER, [line.encode("latin-1") for line in (*lines, "Expect:")])
        self._multi.add_handle(curl)
        self._added = True

    def send(self) -> bool:
        """Send the request without waiting; return False if a part is left to send."""
        with self.running:
            _, running = self._multi.perform()
        return not running or self._curl.getinfo(pycurl.REQUEST_SIZE) > 0

    def receive(self) -> Sequence[bytes]:
        """Receive the next mebibyte of the body, or less at its end; first also the head."""
        if self.pid != os.getpid():
            raise BrokenError("the connection is that of the parent process")
        interrupt = interrupted_by()
        last_event = time.monotonic()
        while True:
            if interrupt:
                interrupt.check()
            with self.running:
                _, running = self._multi.perform()
            if not running:
                self.done = True
                self._check()
                break
            if sum(map(len, self._data)) >= PIECE_BYTES:
                break
            if self._wait():
                last_event = time.monotonic()
            elif time.monotonic() - last_event >= self._silence_seconds:
                raise BrokenError("no answer in time")
        # Passing on many small pieces, such as TLS records, would cost more time than one copy.
        pieces = [b"".join(self._data)] if len(self._data) > _MOST_PIECES else list(self._data)
        self._data.clear()
        return pieces

    def _wait(self) -> bool:
        """Wait a moment for the connection; return whether it became ready or has sent bytes."""
        due_ms = self._multi.timeout()  # 0 if libcurl has something to do, such as TLS to decrypt
        if due_ms == 0:
            return False
        seconds = min(_TURN_SECONDS, self._silence_seconds)
        if due_ms > 0:
            seconds = min(seconds, due_ms / 1000)
        began = time.monotonic()
        if self._multi.select(seconds) > 0:
            return True
        if time.monotonic() - began < seconds / 2:
            # select() knows no descriptors from 1024 on, and none during a name's resolution.
            socket = self._curl.getinfo(pycurl.ACTIVESOCKET)
            if socket < 0:
                time.sleep(_RECHECK_SECONDS)
                return False
            poll = select.poll()
            poll.register(socket, select.POLLIN)
            before, self._uploaded = self._uploaded, self._curl.getinfo(pycurl.SIZE_UPLOAD_T)
            return bool(poll.poll(_RECHECK_SECONDS * 1000)) or self._uploaded != before
        return False

    def _check(self) -> None:
        """Raise the error that the transfer ended with, if any."""
        _, _, failed = self._multi.info_read()
        for _, code, text in failed:
            system = self._curl.getinfo(pycurl.OS_ERRNO)
            url = self._curl.getinfo(pycurl.EFFECTIVE_URL)
            raise _unresolved(code, url, self.proxy) or _broken(code, text, system, self.proxy)

    def end(self) -> None:
        """End the request; libcurl closes the connection if the answer was incomplete."""
        if self._added:
            self._added = False
            with self.running:
                self._multi.remove_handle(self._curl)
        if self._method not in _NEVER_CHANGING:  # GET and HEAD have no body
            self._curl.setopt(pycurl.READFUNCTION, _NOTHING)  # releases the body
        self._data.clear()
        self.head.clear()

    def close(self) -> None:
        with self.running:
            with suppress(pycurl.error):  # the handle is not in use
                self._multi.remove_handle(self._curl)
            self._curl.close()
            self._multi.close()


def _send(transfers: Iterable[_Transfer]) -> None:
    """Send requests, making their connections at the same time."""
    interrupt = interrupted_by()
    while transfers := [each for each in transfers if not each.send()]:
        if interrupt:
            interrupt.check()
        time.sleep(_RECHECK_SECONDS)


def _once() -> Callable[..., int]:
    """Return a callback that lets libcurl send a request once, not again on another connection."""
    answers: Iterator[int] = iter([pycurl.PREREQFUNC_OK])
    no: int = pycurl.PREREQFUNC_ABORT

    def may_send(*_: object) -> int:
        return next(answers, no)

    return may_send


def _reading(body: Sequence[Buffer]) -> Callable[[int], bytes]:
    """Return a callback that returns the next bytes of a body in pieces, and none at its end."""
    if len(body) == 1 and isinstance(body[0], bytes):
        return BytesIO(body[0]).read
    views = [memoryview(piece).cast("B") for piece in reversed(body)]

    def read(size_bytes: int) -> bytes:
        while views:
            view = views.pop()
            if len(view) > size_bytes:
                views.append(view[size_bytes:])
            if view:
                return bytes(view[:size_bytes])
        return b""

    return read


def _parsed(lines: Sequence[bytes]) -> tuple[int, dict[str, str]]:
    """Parse status and headers of the last head: a proxy's head may precede it, trailers follow."""
    heads = b"".join(lines).decode("latin-1")
    status, *last = heads[heads.rfind("\nHTTP/") + 1 :].split("\n")
    headers: dict[str, str] = {}
    for line in last:
        name, colon, text = line.partition(":")
        if not colon and not name.strip():
            break
        name, text = name.lower(), text.strip()
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return int(status.split(" ")[1]), headers


def _options(server: SplitResult, connect_seconds: float) -> dict[int, Any]:
    options: dict[int, Any] = {
        pycurl.NOSIGNAL: 1,  # required with threads
        pycurl.PATH_AS_IS: 1,  # keys may have segments like ".."
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
        pycurl.HTTP_CONTENT_DECODING: 0,  # objects arrive as they are stored
        pycurl.FOLLOWLOCATION: 0,
        pycurl.CONNECTTIMEOUT_MS: max(1, round(1000 * connect_seconds)),
        pycurl.USERAGENT: "larder",
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.BUFFERSIZE: _RECEIVE_BYTES,
        pycurl.UPLOAD_BUFFERSIZE: _SEND_BYTES,
        pycurl.PROXY: _proxy(server),
        pycurl.NOPROXY: "",  # decided by `_proxy`
    }
    trusted = trusted_certificates()
    of_file = (pycurl.CAINFO, pycurl.PROXY_CAINFO)
    of_folder = (pycurl.CAPATH, pycurl.PROXY_CAPATH)
    options |= dict.fromkeys(of_folder if os.path.isdir(trusted) else of_file, trusted)
    return options


def _proxy(server: SplitResult) -> str:
    """Return the environment's proxy for a server, or an empty string."""
    proxies = getproxies()
    proxy = proxies.get(server.scheme) or proxies.get("all", "")
    if not proxy or proxy_bypass(server.netloc) or _is_in_network(server, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_in_network(server: SplitResult, no_proxy: str) -> bool:
    """Whether a server is given as an address in a network without a proxy, as for curl."""
    for each in re.split(r"[\s,]+", no_proxy):
        with suppress(ValueError):  # host or network is a name
            network = ip_network(each.strip("[]"), strict=False)
            if ip_address(server.hostname or "") in network:
                return True
    return False


def trusted_certificates() -> str:
    """Return the file or folder with certificates: from a variable, the system or botocore."""
    for variable in _CA_BUNDLES:
        if named := os.environ.get(variable):
            return named
    for system in (ssl.get_default_verify_paths().cafile, *_SYSTEM_CERTIFICATES):
        if system and os.path.isfile(system) and os.path.getsize(system):
            return system
    from botocore.httpsession import get_cert_path

    path: str = get_cert_path(True)
    return path


_CAUSES = {
    pycurl.E_UNSUPPORTED_PROTOCOL: "the answer is not HTTP",
    pycurl.E_FTP_WEIRD_SERVER_REPLY: "the answer is not HTTP",
    pycurl.E_COULDNT_CONNECT: "cannot connect",
    pycurl.E_OPERATION_TIMEDOUT: "no answer in time",
    pycurl.E_PEER_FAILED_VERIFICATION: "the certificate is not trusted",
    pycurl.E_SSL_CACERT_BADFILE: "the file with the trusted certificates cannot be read",
}
_CLOSED = {
    pycurl.E_PARTIAL_FILE,
    pycurl.E_ABORTED_BY_CALLBACK,  # see `_once`
    pycurl.E_SSL_CONNECT_ERROR,
    pycurl.E_GOT_NOTHING,
    pycurl.E_SEND_ERROR,
    pycurl.E_RECV_ERROR,
    pycurl.E_SEND_FAIL_REWIND,
}
_CERTIFICATES = {pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE}


_PROXY_HINT = "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
_HOST_HINT = (
    "check the name, the region and the network; of a server other than the cloud's own, give the"
    " address: endpoint=, or AWS_ENDPOINT_URL for S3"
)


def _refused(proxy: str) -> BrokenError:
    cause = f"the proxy {proxy} refuses the connection"
    return BrokenError(cause, hint=_PROXY_HINT, final=True)


def _unresolved(code: int, url: str, proxy: str) -> BrokenError | None:
    """Return the error of a host or proxy that has no address; None for other errors."""
    if code == pycurl.E_COULDNT_RESOLVE_PROXY:
        host, hint = f"of the proxy {proxy}", _PROXY_HINT
    elif code == pycurl.E_COULDNT_RESOLVE_HOST:
        host, hint = str(urlsplit(url).hostname), _HOST_HINT
    else:
        return None
    return BrokenError(f"the host name {host} cannot be resolved", hint=hint, refused=True)


def _broken(code: int, text: str, system: int, proxy: str) -> BrokenError:
    """Return the error for a code of libcurl, with its message, errno and the proxy on the way."""
    if code in _CERTIFICATES:
        hint = "check the server's certificate, or set AWS_CA_BUNDLE"
        return BrokenError(_CAUSES[code], hint=hint, final=True)
    if code == pycurl.E_SSL_CONNECT_ERROR and "wrong version number" in text:
        hint = "write http:// in the address of the server"
        return BrokenError("the server does not speak TLS", hint=hint, final=True)
    if code == pycurl.E_COULDNT_CONNECT and system == errno.ECONNREFUSED:
        cause = f"the proxy {proxy} refuses connections" if proxy else "connection refused"
        hint = _PROXY_HINT if proxy else "check that the server runs, and its address and port"
        return BrokenError(cause, hint=hint, refused=True)
    if system in SYSTEM_LIMITS:
        cause, hint = SYSTEM_LIMITS[system]
        return BrokenError(cause, hint=hint, final=True)
    if "CONNECT tunnel" in text:
        return _refused(proxy)
    cause = _CAUSES.get(code, "the connection broke")
    if "chunk" in text:
        cause = "the answer is not HTTP"
    elif code in _CLOSED:
        cause = "connection reset" if system == errno.ECONNRESET else "connection closed"
    if proxy:
        cause = f"{cause} (through the proxy {proxy})"
    return BrokenError(cause, hint=_PROXY_HINT if proxy else "")
