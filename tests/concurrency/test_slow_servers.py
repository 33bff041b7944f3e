"""Stores whose servers are slow, or never answer: how long a request or a stop waits."""

import socket

import pytest
from scripted_s3 import Say, scripted_s3

from larder.config.urls import Access
from larder.errors import FatalError, RetryableError
from larder.store import open_store
from larder.store.interrupt import Interrupt
from tests.support.http_server import served
from tests.support.processes import wait_until

NEVER_SECONDS = 3600.0
ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("slow", ["begin", "abort"])
def test_a_stop_waits_a_moment_for_uploads_to_begin_and_to_be_aborted(slow):
    """An upload that began while no caller waited for its answer could not be aborted."""
    begun = Say(200, "<R><UploadId>u</UploadId></R>", seconds=1.0 if slow == "begin" else 0.0)
    other = Say(204, seconds=NEVER_SECONDS if slow == "abort" else 0.0)
    with scripted_s3(begun, other) as script:
        interrupt = Interrupt()
        with (
            interrupt.active(),
            open_store("s3://bucket/p", endpoint=script.endpoint).writer("k") as writer,
        ):
            writer.write(bytes((16 << 20) + 1))
            wait_until(lambda: bool(script.asked))
            interrupt.stop()
            with pytest.raises(FatalError):
                interrupt.sleep(10)
        assert script.asked[0] == "POST /bucket/p/k?uploads="
        assert "DELETE /bucket/p/k?uploadId=u" in script.asked


@pytest.mark.parametrize("call", ["get", "put", "list", "head", "role"])
def test_a_server_that_never_answers_is_given_up(call):
    accepted: list[int] = []

    def mute(one: socket.socket) -> None:
        accepted.append(one.fileno())
        while one.recv(1 << 16):
            pass

    with served(mute) as port:
        role = ROLE if call == "role" else None
        access = Access(endpoint=f"http://127.0.0.1:{port}", give_up_seconds=0.4, role=role)
        store = open_store("s3://bucket/", access=access)
        calls = {"put": lambda: store.put("k", b"x"), "list": lambda: list(store.list())}
        with pytest.raises(RetryableError) as caught:
            calls.get(call, lambda: store.head("k") if call == "head" else store.get("k"))()
        assert caught.value.code == "store.unavailable"
        assert 1 <= len(accepted) <= 2, "one repetition at most has time to end"
