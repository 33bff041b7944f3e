"""Conditional writes whose answers are lost: sent again, they meet what they have written."""

import http.client
import uuid
from collections.abc import Callable

import pytest

from larder.errors import PreconditionError
from larder.store import RetryPolicy, Store, open_store
from tests.support.http_server import QuietHandler, serving
from tests.support.servers import S3Server

pytestmark = pytest.mark.exhaustive

TRIALS = 5
HASTY = RetryPolicy(first_delay_seconds=0.01, most_delay_seconds=0.01)


class LosingProxy:
    """Between a client and an S3 server: it may drop a connection in place of the answer to a PUT.

    Args:
        server: The server.
        keep: Whether connections are used again, so that the client may take one that is lost for
            one that was closed while it was idle, and send its request again by itself.
    """

    def __init__(self, server: S3Server, *, keep: bool) -> None:
        self.lose = 0
        """How many of the next answers to PUTs are lost, after the server has given them."""
        self.after: Callable[[], object] = lambda: None
        """Called when an answer is lost."""
        self.lost = 0
        proxy = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1" if keep else "HTTP/1.0"

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "PUT" and self.headers.get("Expect"):
                    del self.headers["Expect"]  # answered by this proxy
                connection = http.client.HTTPConnection("127.0.0.1", server.port)
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                if self.command == "PUT" and proxy.lose:
                    proxy.lose -= 1
                    proxy.lost += 1
                    proxy.after()
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, text in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, text)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = forward  # noqa: N815
            do_PUT = forward  # noqa: N815

        self.handler = Handler


@pytest.fixture(params=[False, True], ids=["closed", "kept"])
def proxy(request: pytest.FixtureRequest, moto_server: S3Server) -> LosingProxy:
    moto_server.create_bucket("lost")
    return LosingProxy(moto_server, keep=request.param)


def stores(url: str, server: S3Server) -> tuple[Store, Store]:
    """A new prefix through the proxy, and without it."""
    place = f"s3://lost/{uuid.uuid4().hex}"
    return open_store(place, endpoint=url, retry=HASTY), open_store(place, endpoint=server.endpoint)


@pytest.mark.parametrize("times", [1, 2])
def test_a_conditional_write_meets_itself(proxy, moto_server, times):
    with serving(proxy.handler) as url:
        for trial in range(TRIALS):
            store, direct = stores(url, moto_server)
            store.put("before", b"a connection that is used again")
            proxy.lose = times
            made = store.put("k", b"one %d" % trial, if_absent=True)
            assert (direct.get("k"), direct.head("k").etag) == (b"one %d" % trial, made.etag)
            proxy.lose = times
            replaced = store.put("k", b"two %d" % trial, if_match=made.etag)
            assert (direct.get("k"), direct.head("k").etag) == (b"two %d" % trial, replaced.etag)
    assert proxy.lost == 2 * times * TRIALS


def test_what_somebody_else_wrote_in_the_meantime_is_still_a_conflict(proxy, moto_server):
    with serving(proxy.handler) as url:
        store, direct = stores(url, moto_server)
        first = store.put("k", b"first")
        for number, if_match in enumerate((None, first.etag)):
            proxy.lose, key = 1, f"{number}"
            if if_match:
                direct.put(key, b"first")
            proxy.after = lambda key=key: direct.put(key, b"theirs")  # type: ignore[misc]
            with pytest.raises(PreconditionError):
                store.put(key, b"ours", if_absent=not if_match, if_match=if_match)
            assert direct.get(key) == b"theirs"
