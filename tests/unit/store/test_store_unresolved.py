"""A host that has no address: libcurl asks no network for names below .onion."""

import pytest

from larder.errors import RetryableError
from larder.store import RetryPolicy, open_store
from larder.store.http import BrokenError, Http

HOST = "nowhere.onion"


class Clock:
    """Time that passes only where something waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("url", ["s3://bucket/dir", "gs://bucket/dir"])
def test_the_host_and_the_option_for_another_are_named_soon(url):
    clock = Clock()
    retry = RetryPolicy(sleep=clock.sleep, clock=clock)
    store = open_store(url, endpoint=f"http://{HOST}:9000", retry=retry)
    with pytest.raises(RetryableError) as caught:
        store.head("k")
    assert caught.value.code == "store.unavailable"
    assert HOST in caught.value.message
    assert caught.value.where == f"{url}/k"
    assert {"endpoint=", "AWS_ENDPOINT_URL"} <= set(caught.value.hint.replace(",", "").split())
    assert clock.now < 3


def test_a_proxy_without_an_address_is_named(monkeypatch):
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", f"http://user:hunter2@{HOST}:8080")
    http = Http("http://127.0.0.1:9", connect_seconds=60, silence_seconds=60)
    with pytest.raises(BrokenError) as caught:
        http.request("GET", "/", {})
    assert f"the proxy {HOST}:8080 " in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "HTTPS_PROXY" in caught.value.hint
    assert caught.value.refused
