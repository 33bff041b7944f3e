"""What a signal does while a flow runs."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flows._interrupt import hear_signals, interruptible
from larder.errors import FatalError, StoreError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_steps_to_stop(number: int) -> None:
    stop, said = threading.Event(), threading.Event()
    before = signal.getsignal(number)

    def steps() -> None:
        os.kill(os.getpid(), number)
        assert stop.wait(60)
        assert said.wait(60)
        raise FatalError("run.interrupted", "stopped")

    with (
        pytest.raises(KeyboardInterrupt),
        interruptible(stop, lambda line: said.set(), lambda: None),
    ):
        steps()
    assert signal.getsignal(number) is before


def test_other_errors_stay_what_they_are() -> None:
    with (
        pytest.raises(StoreError),
        interruptible(threading.Event(), print, lambda: None),
    ):
        raise StoreError("store.denied", "no")


def test_prefects_handler_is_replaced_within_and_nothing_without() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(threading.Event(), print, lambda: None):
        ours = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hear_signals()
        assert signal.getsignal(signal.SIGTERM) is ours
    hear_signals()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_ends_the_process_at_once() -> None:
    script = """
import os, signal, threading
from flows._interrupt import interruptible
with interruptible(threading.Event(), lambda line: None, lambda: print("closed", flush=True)):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "closed\n", "")
