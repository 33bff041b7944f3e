"""A server process that forks children, which share all that the server has imported.

A new program takes half a second of a core to start, nearly all of it for imports, and 45 MB that
no other process shares. A process with threads cannot be forked: its child would wait for ever for
locks that the threads held. So a command that has read its configuration, and has no threads yet,
forks a server (`forking`), which has no threads either. The server forks a child on request, tells
how a child ended, and ends as soon as the command is gone.

A Prefect worker and a training process have no server, nor has macOS, whose libraries cannot be
used after a fork.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

_MESSAGE_BYTES = 64
_LOOK_SECONDS = 0.005


@contextmanager
def forking(main: Callable[[int], None]) -> Iterator[None]:
    """Let `fork` make children, which call ``main``, within a ``with`` block.

    Without effect on other systems than Linux, or if this process has threads.
    """
    global _server
    with suppress(OSError):  # such as too many processes
        if sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1:
            _server = _Server(main)
    try:
        yield
    finally:
        server, _server = _server, None
        if server is not None:
            server.close()


def forks() -> bool:
    """Whether `fork` makes children now."""
    return _server is not None and _server.owner == os.getpid()


def fork(together: int) -> Forked | None:
    """Fork a child that calls the main function with ``together``; None if forking fails."""
    server = _server if forks() else None
    if server is None:
        return None
    with suppress(OSError):
        return Forked(server, together)
    return None


class Forked:
    """A child of the server, to be used as a `subprocess.Popen` with two pipes."""

    def __init__(self, server: _Server, together: int) -> None:
        self._server = server
        self._status: int | None = None
        read, stdin = os.pipe()
        stdout, write = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        try:
            self.pid = server.ask(f"fork {together}", [read, write])
        except OSError:
            self.stdin.close()
            self.stdout.close()
            raise
        finally:
            os.close(read)
            os.close(write)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the child's status; the status of a killed child if the server is gone."""
        began = time.monotonic()
        while self._status is None:
            try:
                self._status = self._server.ask(f"status {self.pid}")
            except BlockingIOError:
                if timeout is not None and time.monotonic() - began >= timeout:
                    raise subprocess.TimeoutExpired("fork", timeout) from None
                time.sleep(_LOOK_SECONDS)
            except OSError:
                self._status = -signal.SIGKILL
        return self._status

    def kill(self) -> None:
        if self._status is None:
            with suppress(OSError):
                self._server.ask(f"kill {self.pid}")


class _Server:
    """The server, and the socket for requests. May be used by many threads."""

    def __init__(self, main: Callable[[int], None]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self.owner = os.getpid()
        with theirs:
            self._pid = os.fork()
            if not self._pid:
                self._socket.close()
                _end_with(lambda: _serve(theirs, main))

    def ask(self, request: str, descriptors: Sequence[int] = ()) -> int:
        """Send a request and return the answer; raises the OSError of the server."""
        with self._lock:
            socket.send_fds(self._socket, [request.encode()], descriptors)
            answer = self._socket.recv(_MESSAGE_BYTES)
        if not answer:
            raise BrokenPipeError("the server is gone")
        error, value = map(int, answer.split())
        if error:
            raise OSError(error, os.strerror(error))
        return value

    def close(self) -> None:
        """End the server; its children end as their pipes are closed."""
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


_server: _Server | None = None


def _end_with(call: Callable[[], None]) -> None:
    """End this process after a call, without the exit functions of its parent."""
    status = 1
    atexit._clear()
    try:
        call()
        atexit._run_exitfuncs()
        status = 0
    except BaseException:  # noqa: BLE001 - no caller would tell
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(requests: socket.socket, main: Callable[[int], None]) -> None:
    """Answer requests until no process can send any more."""
    os.setsid()  # out of reach of the terminal's Ctrl-C
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def fork(together: int) -> int:
        pid = os.fork()
        if not pid:
            requests.close()
            for number, pipe in enumerate(pipes):
                os.dup2(pipe, number)
                os.close(pipe)
            _end_with(lambda: main(together))
        return pid

    calls = {"fork": fork, "status": _status, "kill": _kill}
    while True:
        request, pipes, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 2)
        if not request:
            return
        name, argument = request.decode().split()
        try:
            answer = f"0 {calls[name](int(argument))}"
        except OSError as error:
            answer = f"{error.errno} 0"
        for pipe in pipes:
            os.close(pipe)
        requests.send(answer.encode())


def _status(pid: int) -> int:
    """Return the status of a child as in `subprocess`; BlockingIOError while the child runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        raise BlockingIOError(errno.EAGAIN, "it runs")
    return os.waitstatus_to_exitcode(status)


def _kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return 0
