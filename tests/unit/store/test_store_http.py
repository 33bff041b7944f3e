"""The HTTP client: what servers and proxies between may do."""

import builtins
import gc
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pycurl
import pytest

from larder.errors import FatalError, RetryableError, StoreError
from larder.store import RetryPolicy, libcurl, open_store
from larder.store.base import PIECE_BYTES
from larder.store.http import Answer, BrokenError, Http, _creating, _Transfer
from larder.store.interrupt import Interrupt
from tests.support.certificates import local_certificate
from tests.support.errors import larder_error
from tests.support.http_server import Serve, served


def request_of(one: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (more := one.recv(65536)):
        data += more
    return data


def saying(*answers: bytes, close: bool = False) -> Serve:
    """Says one answer to each request on a connection."""

    def serve(one: socket.socket) -> None:
        for answer in answers:
            if not request_of(one):
                return
            one.sendall(answer)
        if not close:
            request_of(one)

    return serve


def client(port: int, seconds: float = 30.0) -> Http:
    return Http(f"http://127.0.0.1:{port}", connect_seconds=30.0, silence_seconds=seconds)


def at_localhost(port: int, seconds: float = 30.0) -> Http:
    return Http(f"https://localhost:{port}", connect_seconds=30.0, silence_seconds=seconds)


def close(http: Http) -> None:
    """Close its idle connections."""
    while http._idle:
        http._idle.pop().close()


@contextmanager
def asking(
    serve: Serve, context: ssl.SSLContext | None = None, seconds: float = 30.0
) -> Iterator[Http]:
    """A client of such a server."""
    with served(serve, context) as port:
        http = (at_localhost if context else client)(port, seconds)
        try:
            yield http
        finally:
            close(http)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's certificate for 127.0.0.1, which clients trust."""
    certificate = local_certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.path))
    return certificate.context()


@pytest.fixture(params=["http", "https"])
def context(request: pytest.FixtureRequest) -> ssl.SSLContext | None:
    """Without TLS, and with it."""
    return request.getfixturevalue("trusted") if request.param == "https" else None


def get(http: Http) -> Answer:
    return http.request("GET", "/k", {"host": http.host})


NOWHERE = "nowhere.onion"
"""A host that has no address: libcurl asks no network for such names."""
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
BODIES = {
    "a length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "chunks": CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    "trailers": CHUNKED + b"5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_connection_is_used_again_after_a_body_of(kind):
    with asking(saying(BODIES[kind], BODIES[kind], BODIES[kind])) as http:
        for _ in range(3):
            with get(http) as answer:
                assert (answer.status, answer.read()) == (200, b"hello")


def test_a_body_that_ends_with_the_connection():
    answering = saying(b"HTTP/1.0 200 OK\r\n\r\nhello", close=True)
    with asking(answering) as http, get(http) as answer:
        assert answer.read() == b"hello"


def test_several_requests_are_sent_before_the_first_is_answered():
    sent = threading.Barrier(3)

    def serve(one: socket.socket) -> None:
        request = request_of(one)
        sent.wait()
        target = request.split(b" ")[1]
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + target)

    with asking(serve) as http:
        requests = [(target, {"host": http.host}) for target in ("/a", "/b", "/c")]
        assert [answer.read() for answer in http.get_each(requests, 3)] == [b"/a", b"/b", b"/c"]


def test_a_connection_that_was_closed_while_idle_is_replaced():
    with asking(saying(BODIES["a length"], close=True)) as http:
        for _ in range(3):
            with get(http) as answer:
                assert answer.read() == b"hello"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "connection closed"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the answer is not HTTP"),
        (CHUNKED + b"xyz\r\nhello\r\n", "the answer is not HTTP"),
    ],
    ids=["too short", "another protocol", "chunks that are none"],
)
def test_an_answer_that_is_not_whole(said, cause):
    with (
        asking(saying(said, close=True)) as http,
        pytest.raises(BrokenError, match=cause),
        get(http) as answer,
    ):
        answer.read()


def test_an_error_that_comes_before_the_body_was_sent():
    def serve(one: socket.socket) -> None:
        one.recv(1)
        one.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        one.shutdown(socket.SHUT_WR)
        while one.recv(1 << 16):
            pass

    with (
        asking(serve) as http,
        http.request("PUT", "/k", {"host": http.host}, [bytes(8 << 20)]) as answer,
    ):
        assert (answer.status, answer.read()) == (403, b"no")


def test_a_certificate_that_is_not_trusted(trusted, monkeypatch):
    monkeypatch.delenv("AWS_CA_BUNDLE")
    with (
        asking(saying(BODIES["a length"]), trusted) as http,
        pytest.raises(BrokenError, match="the certificate is not trusted"),
    ):
        get(http)


def test_a_server_that_is_silent(context):
    over = threading.Event()

    def serve(one: socket.socket) -> None:
        request_of(one)
        over.wait(60)

    with asking(serve, context, seconds=0.2) as http:
        with pytest.raises(BrokenError, match="no answer in time"):
            get(http)
        over.set()


def test_a_proxy_with_a_user(context, monkeypatch):
    asked: list[bytes] = []
    with served(saying(BODIES["a length"]), context) as there:

        def proxy(one: socket.socket) -> None:
            asked.append(request_of(one))
            if not context:
                one.sendall(BODIES["a length"])
                request_of(one)
                return
            one.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with socket.create_connection(("127.0.0.1", there)) as server:
                back = threading.Thread(target=pump, args=(server, one))
                back.start()
                pump(one, server)
                back.join()

        with served(proxy) as port:
            scheme = "https" if context else "http"
            monkeypatch.setenv(f"{scheme}_proxy", f"http://user:p%40ss@127.0.0.1:{port}")
            monkeypatch.setenv("no_proxy", "")
            http = (at_localhost if context else client)(there)
            with get(http) as answer:
                assert answer.read() == b"hello"
            close(http)
    (head,) = asked
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in head
    first = b"CONNECT localhost:" if context else b"GET http://127.0.0.1:"
    assert head.startswith(first)


@pytest.mark.parametrize("user", ["", "user:hunter2@", "user:hunter/2@", "user:hunter@2@"])
@pytest.mark.parametrize("place", ["refuses", "127.0.0.1:9", f"{NOWHERE}:8080"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_used_is_named(user, place, scheme, monkeypatch):
    """Its user is not."""
    monkeypatch.setenv("no_proxy", "")
    forbidden = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    with served(saying(forbidden)) as port:
        place = f"127.0.0.1:{port}" if place == "refuses" else place
        monkeypatch.setenv(f"{scheme}_proxy", f"http://{user}{place}")
        http = (at_localhost if scheme == "https" else client)(9)
        with pytest.raises(BrokenError, match=f"the proxy {place}") as caught:
            get(http)
        close(http)
    assert "HTTPS_PROXY" in caught.value.hint
    assert "hunter" not in str(caught.value)


def pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # either side has closed


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n"])
def test_a_transfer_that_is_stopped_is_an_error(context, begun):
    interrupt, over = Interrupt(), threading.Event()

    def serve(one: socket.socket) -> None:
        request_of(one)
        if begun:
            one.sendall(begun + bytes(PIECE_BYTES))
        interrupt.stop()
        over.wait(60)

    with asking(serve, context) as http:
        with interrupt.active(), pytest.raises(FatalError, match="stopped"), get(http) as answer:
            answer.read()
        over.set()


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "GET"])
@pytest.mark.parametrize("body", [b"", b"data"])
def test_only_reading_is_sent_again(method, body):
    """A server that carries out a request and closes the connection instead of answering."""
    requests: list[str] = []

    def serve(one: socket.socket) -> None:
        request_of(one)
        one.sendall(BODIES["a length"])
        while request := request_of(one):
            requests.append(request.decode().partition(" ")[0])
            if len(requests) == 1:
                return
            one.sendall(BODIES["a length"])

    with asking(serve) as http:
        get(http).close()
        sent = [body] if body and method != "GET" else []
        if method == "GET":
            get(http).close()
        else:
            with pytest.raises(BrokenError, match="connection"):
                http.request(method, "/k", {"host": http.host}, sent)
    assert requests == [method]


def test_a_server_that_does_not_speak_tls():
    def serve(one: socket.socket) -> None:
        one.recv(1)
        one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with served(serve) as port:
        store = open_store("s3://bucket/", endpoint=f"https://127.0.0.1:{port}", region="us-east-1")
        with pytest.raises(StoreError, match="does not speak TLS") as caught:
            store.head("k")
    assert "http://" in caught.value.hint


def test_a_server_that_refuses_connections():
    with served(saying(BODIES["a length"])) as port:
        http = client(port)
        get(http).close()
        close(http)
    with socket.socket() as kept:  # nobody else gets the port, and nobody listens
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", port))
        with pytest.raises(BrokenError, match="connection refused") as caught:
            get(http)
        assert not caught.value.refused, "it has answered before: it may come back"
        with pytest.raises(BrokenError, match="connection refused") as caught:
            get(client(port))
    assert caught.value.refused
    store = open_store("s3://bucket/", endpoint="http://127.0.0.1:9", retry=None)
    with pytest.raises(RetryableError, match="refused") as refused:
        store.head("k")
    assert "port" in refused.value.hint


@pytest.mark.parametrize("url", ["s3://bucket/dir", "gs://bucket/dir"])
def test_a_host_without_an_address_and_the_option_for_another_are_named_soon(url):
    slept: list[float] = []
    retry = RetryPolicy(sleep=slept.append, clock=lambda: sum(slept))
    with larder_error("store.unavailable", f"{url}/k") as caught:
        open_store(url, endpoint=f"http://{NOWHERE}:9000", retry=retry).head("k")
    assert NOWHERE in caught.value.message
    assert {"endpoint=", "AWS_ENDPOINT_URL"} <= set(caught.value.hint.replace(",", "").split())
    assert sum(slept) < 3


def forked(child: Callable[[], int]) -> int:
    """The status of a child process, which is 1 after any exception."""
    process = os.fork()
    if not process:
        status = 1
        with suppress(BaseException):
            status = child()
        os._exit(status)
    return os.waitpid(process, 0)[1]


def test_a_forked_child_leaves_the_connections_alone(trusted):
    connections: list[int] = []

    def serve(one: socket.socket) -> None:
        connections.append(one.fileno())
        saying(*[BODIES["a length"]] * 3)(one)

    with served(serve, trusted) as port:
        http = at_localhost(port)
        get(http).close()

        def child() -> int:
            nonlocal http
            status = 0 if get(http).read() == b"hello" else 1
            del http
            gc.collect()
            return status

        assert forked(child) == 0
        get(http).close()
        close(http)
    assert len(connections) == 2


def test_a_fork_waits_while_libcurl_runs():
    """A child waited for ever for a lock of OpenSSL, one time in a thousand."""
    order: list[str] = []

    def fork() -> None:
        assert forked(lambda: 0) == 0
        order.append("forked")

    with asking(saying(*[BODIES["a length"]] * 2)) as http:
        get(http).read()
        (transfer,) = http._idle
        forking = threading.Thread(target=fork)

        def received(line: bytes) -> None:
            transfer.head.append(line)
            if not order:
                forking.start()
                while not _creating.locked():
                    pass
                order.append("received")

        transfer._curl.setopt(pycurl.HEADERFUNCTION, received)
        assert get(http).read() == b"hello"
        forking.join()
    assert order == ["received", "forked"]


def long_answer(size_bytes: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size_bytes + bytes(size_bytes)


def test_an_open_answer_is_left_to_the_parent_by_a_forked_child():
    """The child had the parent's connection in its pool, and read from it."""
    with asking(saying(long_answer(5 * PIECE_BYTES), BODIES["a length"])) as http:
        with get(http) as answer:

            def child() -> int:
                with pytest.raises(BrokenError):
                    answer.read()
                return len(http._idle)

            assert forked(child) == 0
            assert len(answer.read()) == 5 * PIECE_BYTES
        assert get(http).read() == b"hello"


def test_an_interrupted_handle_is_not_used_again(monkeypatch):
    """After Ctrl-C between two lines of Python, every later request failed."""
    began = _Transfer.begin

    def interrupted(*arguments: Any) -> None:
        began(*arguments)
        arguments[0]._added = False
        raise KeyboardInterrupt

    with asking(saying(BODIES["a length"])) as http:
        with monkeypatch.context() as patched:
            patched.setattr(_Transfer, "begin", interrupted)
            with pytest.raises(KeyboardInterrupt):
                get(http)
        assert not http._idle
        assert get(http).read() == b"hello"


@pytest.mark.parametrize(
    "text", ["a\r\nhost: b", "a\nb", "\0", "\x7f", "\u0100", "\u2028", "\ud800"]
)
def test_what_no_header_can_have_is_not_sent(text):
    with pytest.raises(BrokenError, match="cannot be sent") as caught:
        client(1).request("GET", "/k", {"host": "a", "x-name": text})
    assert caught.value.final


def test_headers_may_have_tabs_and_latin_letters():
    heads: list[bytes] = []

    def serve(one: socket.socket) -> None:
        heads.append(request_of(one))
        one.sendall(BODIES["a length"])

    with asking(serve) as http:
        http.request("GET", "/k", {"host": http.host, "x-name": "a\t\u00e9"}).close()
    assert b"x-name: a\t\xe9\r\n" in heads[0]


def test_headers_are_those_of_the_last_head_without_trailers():
    early = b"HTTP/1.1 103 Early Hints\r\nx-name: 0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nX-Name: HTTP/1\r\nx-name:2 \r\ntransfer-encoding: chunked\r\n\r\n"
    with asking(saying(early + early + head + b"0\r\nx-name: 3\r\n\r\n")) as http:
        answer = get(http)
    assert answer.status == 200
    assert answer.headers == {"x-name": "HTTP/1, 2", "transfer-encoding": "chunked"}


def test_an_idle_handle_holds_no_body():
    with asking(saying(BODIES["a length"])) as http:
        body = os.urandom(1000)
        before = sys.getrefcount(body)
        http.request("PUT", "/k", {"host": http.host}, [body]).close()
        assert sys.getrefcount(body) == before


def test_a_document_has_a_bound():
    with (
        asking(saying(long_answer(5 * PIECE_BYTES))) as http,
        get(http) as answer,
        pytest.raises(BrokenError, match="more than"),
    ):
        answer.read(2 * PIECE_BYTES)


def test_too_few_open_files_are_named():
    """The limit is raised with ulimit; libcurl's own words say nothing of it."""
    http = client(1)

    def child() -> int:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        with larder_error("run.limit", "http://127.0.0.1:1"):
            get(http)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with pytest.raises(BrokenError, match="connection refused"):
            get(http)
        return 0

    assert forked(child) == 0


ASK = """
import ctypes, sys

endpoint, library = sys.argv[1:]
ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
flags = sys.getdlopenflags()
from larder.store.http import Http

assert sys.getdlopenflags() == flags
http = Http(endpoint, connect_seconds=60, silence_seconds=60)
print([http.request("GET", "/", {"x": "y"}).status for _ in range(20)])
"""
ANOTHER = find_library("curl") or find_library("curl-gnutls")
ALLOCATORS = ["", *filter(None, map(find_library, ("tcmalloc_minimal", "jemalloc")))]


@pytest.mark.skipif(not ANOTHER, reason="the system has no libcurl")
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_requests_beside_another_libcurl_and_with_another_allocator(rclone_server, allocator):
    command = [sys.executable, "-c", ASK, rclone_server.endpoint, str(ANOTHER)]
    environment = os.environ | {"LD_PRELOAD": allocator}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{[400] * 20}\n"


def test_without_the_flag_of_glibc_the_import_is_a_plain_one(monkeypatch):
    monkeypatch.delattr(os, "RTLD_DEEPBIND", raising=False)
    assert libcurl._import_pycurl() is pycurl


def test_a_pycurl_that_cannot_be_imported_is_named_with_the_way_out(monkeypatch):
    flags, real = sys.getdlopenflags(), builtins.__import__

    def refusing(name, *others):
        if name == "pycurl":
            raise ImportError("libcurl link-time version (8.11.0) is older")
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with larder_error("config.missing_package"):
        libcurl._import_pycurl()
    assert sys.getdlopenflags() == flags
