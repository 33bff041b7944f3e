"""The effect of a signal in each state of a command."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

import pytest

from larder.cli.signals import hear_signals, interruptible, interrupting
from larder.errors import FatalError
from tests.support.processes import CHECKOUT, run_python


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_the_steps_to_stop(number):
    stop, said = threading.Event(), threading.Event()
    before = signal.getsignal(number)

    def steps() -> None:
        os.kill(os.getpid(), number)
        assert stop.wait(60)
        assert said.wait(60)
        raise FatalError("run.interrupted", "stopped")

    with pytest.raises(KeyboardInterrupt), interruptible(stop, lambda line: said.set()):
        steps()
    assert signal.getsignal(number) is before


def test_prefects_handler_is_replaced_within_and_nothing_without():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(threading.Event(), print):
        ours = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hear_signals()
        assert signal.getsignal(signal.SIGTERM) is ours
    hear_signals()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_that_something_caught_still_counts():
    def work() -> None:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with interruptible(threading.Event(), print):
            raise AssertionError("it goes on")

    with pytest.raises(KeyboardInterrupt), interrupting(json=False):
        work()


STEPS = """
import os, signal, sys, threading
from larder.cli.signals import arm, conclude, interruptible, loading, restoring
arm()
from larder.cli.exit import run
def say(line): pass
def kill(number=signal.SIGINT): os.kill(os.getpid(), number)
"""


def finished(
    script: str, *arguments: str, ignored: Sequence[signal.Signals] = ()
) -> subprocess.CompletedProcess[str]:
    """A process of its own, with the signals as a terminal leaves them, but for some ignored."""
    prelude = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    ignored = str(int(number)) in sys.argv[1].split()
    signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
    numbers = " ".join(str(int(number)) for number in ignored)
    return run_python("-c", prelude, numbers, "-c", STEPS + script, *arguments)


TWICE = """
def main():
    stop = threading.Event()
    with restoring(lambda: os.write(2, b"restored\\n")), interruptible(stop, say):
        kill({0})
        kill(signal.SIGTERM)
        threading.Event().wait()
sys.exit(run(main))
"""
AGAIN = """
def main():
    try:
        kill({0})
    finally:
        kill({0})
        os.write(2, b"went on")
sys.exit(run(main))
"""


@pytest.mark.parametrize(
    ("script", "number"),
    [
        ("kill({})", signal.SIGINT),
        ("sys.exit(run(lambda: kill({})))", signal.SIGTERM),
        ("def main():\n  with loading(): kill({})\nsys.exit(run(main))", signal.SIGTERM),
        # What is imported or closed may catch the interrupt, or make another error of it.
        (
            "def main():\n  try: kill({})\n  finally: raise ValueError\nsys.exit(run(main))",
            signal.SIGHUP,
        ),
        (AGAIN, signal.SIGINT),
        (TWICE, signal.SIGINT),
    ],
)
def test_one_line_one_document_and_130_wherever_it_comes(script, number):
    done = finished(script.format(int(number)), "--json")
    line = "error[run.interrupted]: interrupted; run the same command again to continue"
    told = ["restored", line] if script == TWICE else [line]
    assert (done.returncode, done.stderr.splitlines()) == (130, told)
    assert json.loads(done.stdout)["error"]["code"] == "run.interrupted"


def test_once_the_command_is_over_a_signal_does_not_change_its_status():
    script = """
import atexit
atexit.register(lambda: kill() or os.write(2, b"went on"))
print(run(lambda: 3))
sys.exit(3)
"""
    done = finished(f"sys.stdout.reconfigure(line_buffering=True)\n{script}")
    assert (done.returncode, done.stdout, done.stderr) == (3, "3\n", "")


def test_signals_ignored_at_the_start_stay_ignored():
    script = """
def main():
    for number in (signal.SIGINT, signal.SIGHUP):
        kill(number)
        with loading(): kill(number)
        with interruptible(threading.Event(), say): kill(number)
    return 0
sys.exit(run(main))
"""
    done = finished(script, ignored=(signal.SIGINT, signal.SIGHUP))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_closed_standard_streams_are_not_taken_by_other_files():
    script = """
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
assert min(opened) > 2, opened
print("nobody sees it", file=sys.stderr)
sys.exit(run(lambda: 4))
"""
    shell = [sys.executable, "-c", STEPS + script]
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", *shell], cwd=CHECKOUT, check=False
    )
    assert done.returncode == 4
