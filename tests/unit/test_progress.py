"""The progress of a stage: forwarded, stopped between two objects, recorded."""

from threading import Event
from typing import Any
from unittest import mock

import pytest

from larder.errors import FatalError
from larder.progress import WAIT, CancellableProgress, NullProgress, StageTimes
from tests.support.errors import larder_error


def test_it_forwards_calls_until_it_is_asked_to_stop():
    listener, stop = mock.create_autospec(NullProgress, instance=True), Event()
    progress = CancellableProgress(listener, stop)

    def tell(method: str, **told: Any) -> None:
        getattr(progress, method)("copy", **told)

    calls = {"start": {"objects": 2, "bytes": 3}, "advance": {"objects": 1, "bytes": 2}}
    for method, told in calls.items():
        tell(method, **told)
        getattr(listener, method).assert_called_once_with("copy", **told)
    stop.set()
    for method, told in calls.items():
        with larder_error("run.interrupted"):
            tell(method, **told)
        getattr(listener, method).assert_called_once()
    progress.finish("copy")
    listener.finish.assert_called_once_with("copy")
    with pytest.raises(FatalError):
        CancellableProgress(listener, stop)


def test_the_time_of_a_run_is_without_the_time_that_it_waited_for_another():
    now = 100.0
    times = StageTimes(clock=lambda: now)
    now += 2
    times.start(WAIT)
    now += 30
    assert times.seconds() == 2
    times.finish(WAIT)
    now += 1
    assert (times.seconds(), times.waited_seconds()) == (3, 30)


def test_a_run_that_starts_again_ends_its_stages_and_adds_to_them():
    listener, now = mock.create_autospec(NullProgress, instance=True), 100.0
    times = StageTimes(listener, clock=lambda: now)
    times.start("list", objects=6)
    now += 1
    times.advance("list", objects=3)
    times.finish("list")
    now += 60
    times.finish("list")  # it has ended
    times.start("publish")
    now += 2
    times.restart("another run was first")
    listener.restart.assert_called_once_with("another run was first")
    now += 50
    assert times.stages()["publish"]["seconds"] == 2.0
    times.start("list")
    now += 3
    times.finish("list")
    now += 60
    times.start("list")  # the time in between does not count
    now += 1
    times.advance("list", objects=3)
    times.finish("list")
    times.start("publish")
    now += 8
    times.finish("publish")
    times.advance("late", bytes=1)
    assert list(times.stages().items()) == [
        ("list", {"seconds": 5.0, "objects": 6, "bytes": 0}),
        ("publish", {"seconds": 10.0, "objects": 0, "bytes": 0}),
        ("late", {"seconds": 0.0, "objects": 0, "bytes": 1}),
    ]
    listener.start.assert_any_call("list", objects=6, bytes=None)
    listener.advance.assert_any_call("list", objects=3, bytes=0)
    listener.finish.assert_called_with("publish")
