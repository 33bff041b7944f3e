"""Processes that a command forks: what they have, how they end, and what becomes of them."""

import os
import subprocess
import sys

import pytest

from larder.jobs.processes import _PROGRAM, _Call, _write
from tests.support.processes import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")

_COMMON = """
import os, signal, threading
from larder.errors import FatalError
from larder.jobs import fork_server, processes
from larder.jobs.processes import Process
from tests.support.processes import children, is_running, wait_until

def status(process):
    try:
        process.call(os._exit, 3)
    except FatalError as error:
        return error.message
"""


def said(program: str) -> list[str]:
    done = run_python("-c", _COMMON + program, PYTHONPATH=os.getcwd())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_children_have_what_was_imported_and_answer():
    assert said("""
with fork_server.forking(processes.serve):
    one, two = Process(2), Process(2)
    server, = children(os.getpid())
    print(sorted(children(server)) == sorted([one.process.pid, two.process.pid]))
    print(one.call(os.getpid) == one.process.pid, two.call(os.getpid) == two.process.pid)
    one.close(), two.close()
    print(children(server))
print(children(os.getpid()), fork_server.forks())
""") == ["True", "True True", "[]", "[] False"]


def test_it_is_said_how_a_child_ended():
    assert said("""
with fork_server.forking(processes.serve):
    one = Process()
    print(status(one))
    one.close()
    two = Process()
    os.kill(two.process.pid, signal.SIGKILL)
    print(status(two))
    two.close()
""") == [
        "a process that Larder started ended with status 3",
        "a process that Larder started ended with status -9",
    ]


def test_a_child_that_does_not_end_is_killed():
    assert said("""
with fork_server.forking(processes.serve):
    one = Process()
    one.submit(signal.pause)
    wait_until(lambda: is_running(one.process.pid))
    one.close()
    print(is_running(one.process.pid))
""") == ["False"]


@pytest.mark.parametrize("lost", ["no server", "threads", "killed"])
def test_without_a_server_processes_are_programs(lost):
    begin = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    killed = "os.kill(children(os.getpid())[0], signal.SIGKILL)"
    assert said(f"""
from contextlib import nullcontext
{begin if lost == "threads" else ""}
with nullcontext() if {lost == "no server"} else fork_server.forking(processes.serve):
    {killed if lost == "killed" else ""}
    one = Process()
    print(fork_server.fork(1), one.call(os.getppid) == os.getpid())
    one.close()
""") == ["None True"]


def test_children_of_a_server_that_is_gone_end_too():
    assert said("""
with fork_server.forking(processes.serve):
    one = Process()
    one.call(os.getpid)
    os.kill(children(os.getpid())[0], signal.SIGKILL)
    one.close()
    wait_until(lambda: not is_running(one.process.pid))
    print("ended")
""") == ["ended"]


def test_a_child_does_at_its_end_what_it_has_to_and_nothing_of_its_parent(tmp_path):
    assert said(f"""
import atexit
atexit.register(print, "the end of the command")
with fork_server.forking(processes.serve):
    one = Process()
    print(one.call(atexit.register, os.mkdir, {str(tmp_path / "made")!r}) is os.mkdir, flush=True)
    one.close()
""") == ["True", "the end of the command"]
    assert (tmp_path / "made").exists()


def test_a_process_whose_parent_is_gone_says_nothing():
    """Its answer is the first that it learns of it, as its own requests wait in a pipe."""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", _PROGRAM, "1", os.getcwd(), *sys.path]
    pipes = {"stdin": subprocess.PIPE, "stdout": writer, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        os.close(reader)
        os.close(writer)
        _write(process.stdin, _Call("os:getpid", (), {}, ""))
        assert (process.wait(), process.stderr.read()) == (1, b"")
