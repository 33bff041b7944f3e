"""Where batches run: what is refused before one is submitted."""

import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from flows.runs import batch_executors
from flows.runs.batch_executors import executor_for
from flows.runs.configure import check_runner
from flows.runs.flow_command import main
from larder.bounds import STREAM_BYTES
from larder.cli.command import Operation
from larder.config.models.copy_config import RunnerConfig
from larder.config.models.locations import Location
from larder.errors import ConfigError
from tasks.task_runner import first_object, see_object
from tests.support.errors import larder_error


def operation(storage: str = "memory://here", **runner: Any) -> Operation:
    def nothing(*_: Any) -> Any:
        raise AssertionError("no step is run")

    places = RunnerConfig(**runner), Location(url=storage)
    return Operation(2, nothing, nothing, nothing, *places, 2**30)


def refused(**runner: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_runner(RunnerConfig(**runner))
    return caught.value


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")


def test_threads_are_as_many_as_there_are_batches_at_once():
    with executor_for(operation()) as opened:
        assert (opened.batches_at_once, opened.together, opened.elsewhere) == (2, 2, False)


@pytest.mark.parametrize(
    ("limit", "streams", "workers", "together"),
    [(None, 4, 8, 4), (3, 4, 3, 3), (100, 4, 8, 4), (None, 16, 32, 16), (100, 16, 100, 16)],
)
def test_batches_elsewhere_have_room_in_the_memory_of_each_machine(
    limit, streams, workers, together, monkeypatch
):
    """With room for all threads, a limit may count on machines that are to come."""

    @contextmanager
    def dask(*_: Any) -> Iterator[Any]:
        yield None, Counter({"one": 16, "two": 16}), None, None

    monkeypatch.setattr(batch_executors, "_dask", dask)
    small = operation(kind="dask", workers=limit)._replace(memory=streams * STREAM_BYTES)
    with executor_for(small) as opened:
        assert (opened.batches_at_once, opened.together) == (workers, together)


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_missing_package_is_named_with_its_extra(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, f"prefect_{kind}", None)
    error = refused(kind=kind)
    assert error.code == "config.missing_package"
    assert f"prefect-{kind}" in error.message
    assert f"[{kind}]" in error.hint


@pytest.mark.parametrize("scheme", ["", "tcp://", "ray://"])
@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_an_address_where_nothing_listens(kind, scheme, monkeypatch):
    monkeypatch.setattr("flows.runs.configure.require", lambda _: None)
    with socket.socket() as deaf:  # it has a port, and does not listen
        deaf.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{deaf.getsockname()[1]}"
        error = refused(kind=kind, address=address)
    assert (error.code, error.where) == ("config.runner", address)


@pytest.mark.parametrize("server", ["", "http://127.0.0.1:4200/api"])
def test_such_an_address_is_found_before_the_listing(server, tmp_path, monkeypatch):
    monkeypatch.setattr("flows.runs.configure.require", lambda _: None)
    monkeypatch.setenv("PREFECT_API_URL", server)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        runner = {"kind": "dask", "address": address}
        settings = [f"--set=cluster.runner.{name}={value}" for name, value in runner.items()]
        places = [f"--set=source.url={tmp_path}/none", f"--set=cluster.storage.url={tmp_path}"]
        with larder_error("config.runner", address):
            main("prepare", ["--quiet", "--dataset=files", *places, *settings])


def test_workers_elsewhere_need_a_server_that_they_reach(monkeypatch):
    monkeypatch.setattr("flows.runs.configure.require", lambda _: None)
    error = refused(kind="dask", address="192.0.2.1:8786")
    assert (error.code, error.where) == ("config.runner", "192.0.2.1:8786")
    assert "PREFECT_API_URL" in error.hint


LOST = "Server failure:\nTraceback:\n  File\nRuntimeError: see a.log\n\n"


def losing(count: int, error: Exception) -> Callable[[], Any]:
    """What opens a runner of a Ray cluster that loses its first clients."""
    lost = iter([True] * count + [False])

    @contextmanager
    def runner() -> Iterator[str]:
        if next(lost):
            raise error
        yield "connected"

    return runner


@pytest.mark.parametrize(
    ("address", "count", "error", "message"),
    [
        ("ray://a:1", 2, ConnectionAbortedError(LOST), None),
        ("ray://a:1", 3, ConnectionAbortedError(LOST), "cannot connect: RuntimeError: see a.log"),
        ("ray://a:1", 1, RuntimeError("Version mismatch:\n  3.12"), "mismatch:\n  3.12"),
        ("a:1", 1, ConnectionAbortedError("no"), "cannot connect: no"),
        (None, 1, ConnectionError("no"), "no workers start: no"),
    ],
)
def test_a_ray_cluster_that_loses_its_client_is_connected_to_again(address, count, error, message):
    runner, stack = losing(count, error), ExitStack()
    if message is None:
        with stack, batch_executors._connecting(address):
            assert batch_executors._connected_to_ray(runner, stack, address) == "connected"
        return
    with larder_error("config.runner") as caught, stack, batch_executors._connecting(address):
        batch_executors._connected_to_ray(runner, stack, address)
    assert caught.value.message.endswith(message)
    assert "Traceback" not in str(caught.value)


def test_an_object_of_the_storage_is_seen_from_elsewhere(tmp_path):
    (tmp_path / "one/larder").mkdir(parents=True)
    (tmp_path / "one/larder/a").write_bytes(b"content")
    here, there = (Location(url=str(tmp_path / name)) for name in ("one", "two"))
    key, size_bytes = first_object(here)
    see_object(here, key, size_bytes)
    (tmp_path / "two/larder").mkdir(parents=True)
    for content in (None, b"other"):
        if content:
            (tmp_path / "two/larder/a").write_bytes(content)
        with pytest.raises(Exception, match=key) as caught:
            see_object(there, key, size_bytes)
        assert caught.value.code == "object.missing"  # type: ignore[attr-defined]
