"""Faults of servers and disks: what happens to one call of a scene, or to all from there on."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from ssl import SSLContext
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.fake_gcs import FakeGcs
from tests.support.fake_s3 import FakeS3
from tests.support.http_server import Ask, QuietHandler, Say, serving

Backend = FakeS3 | FakeGcs
State = tuple[dict[Any, Any], dict[Any, Any]]
Call = tuple[str, int]
GONE = Say(0)
"""No answer: the connection is reset."""
SILENT = Say(-1)
"""No answer: the connection stays open until the client closes it."""


@dataclass
class Server:
    """Answers as a backend does, except for the calls that a fault is about.

    A call is named by its method, its path and how often both came before, so that one name means
    one call, whatever the order in which threads send them.
    """

    backend: Backend
    endpoint: str = ""
    fault: Fault | None = None
    at: Call | None = None
    hit: bool = False
    asked: list[tuple[Ask, Call]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    before: State = field(default_factory=lambda: ({}, {}))
    pages: dict[str, Say] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def state(self) -> State:
        return dict(self.backend.objects), dict(self.backend.contents)  # type: ignore[arg-type]

    @state.setter
    def state(self, state: State) -> None:
        self.backend.objects, self.backend.contents = dict(state[0]), dict(state[1])

    def reset(self, state: State) -> None:
        """Go back to a state, without a fault."""
        self.state = self.before = state
        self.fault, self.at, self.hit = None, None, False
        self.calls.clear()
        self.asked.clear()

    def answer(self, ask: Ask) -> Say:
        with self.lock:
            if self._due(ask) and self.fault:
                return self.fault.spoil(self, ask)
            said = self.backend.answer(ask)
            if is_listing(ask):
                self.pages[ask.query["prefix"]] = said
            return said

    def _due(self, ask: Ask) -> bool:
        name = f"{ask.method} {ask.path}"
        self.calls[name] += 1
        self.asked.append((ask, (name, self.calls[name])))
        if self.fault is None or not self.fault.about(ask):
            return False
        due = self.at == (name, self.calls[name]) or (self.fault.lasts and self.hit)
        self.hit |= due
        return due


def is_listing(ask: Ask) -> bool:
    return "prefix" in ask.query and "uploads" not in ask.query


def _continues(ask: Ask) -> bool:
    return is_listing(ask) and not {"continuation-token", "pageToken"}.isdisjoint(ask.query)


def _reads(ask: Ask) -> bool:
    media = ask.query.get("alt") == "media" or "/storage/v1/" not in ask.path
    return ask.method == "GET" and media and "prefix" not in ask.query


def _writes(ask: Ask) -> bool:
    return ask.method in ("PUT", "POST")


def _all(_: Ask) -> bool:
    return True


def _status(status: int, code: str, **headers: str) -> Callable[[Server, Ask], Say]:
    text = f"<Error><Code>{code}</Code></Error>".encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda *_: Say(status, text, named)


def _cut(server: Server, ask: Ask) -> Say:
    said = server.backend.answer(ask)
    return replace(said, cut=len(said.body) // 2)


def _longer(server: Server, ask: Ask) -> Say:
    said = server.backend.answer(ask)
    return replace(said, body=said.body + b"more") if said.status in (200, 206) else said


def _unanswered(server: Server, ask: Ask) -> Say:
    server.backend.answer(ask)
    return GONE


def _lost(server: Server, ask: Ask) -> Say:
    before = server.state
    said = server.backend.answer(ask)
    server.state = before
    return said


def _stale(server: Server, ask: Ask) -> Say:
    now = server.state
    server.state = server.before
    said = server.backend.answer(ask)
    server.state = now
    return said


def _page_again(server: Server, ask: Ask) -> Say:
    return server.pages[ask.query["prefix"]]


def _weak(server: Server, ask: Ask) -> Say:
    said = server.backend.answer(ask)
    headers = {name: f"W/{text}" if name == "ETag" else text for name, text in said.headers.items()}
    body = said.body.replace(b"<ETag>&quot;", b"<ETag>W/&quot;") if is_listing(ask) else said.body
    return replace(said, headers=headers, body=body)


def _odd_dates(server: Server, ask: Ask) -> Say:
    said = server.backend.answer(ask)
    headers = {name: text for name, text in said.headers.items() if name != "Last-Modified"}
    body = said.body.replace(b"Z</LastM", b"</LastM").replace(b'Z", "storageC', b'", "storageC')
    return replace(said, headers=headers, body=body if is_listing(ask) else said.body)


def _drip(server: Server, ask: Ask) -> Say:
    said = server.backend.answer(ask)
    return replace(said, headers={**said.headers, "X-Drip": "1"})


@dataclass(frozen=True)
class Fault:
    """``lasts``: also all later calls; ``passes``: what is repeated has to succeed."""

    spoil: Callable[[Server, Ask], Say]
    about: Callable[[Ask], bool] = _all
    lasts: bool = False
    passes: bool = False


_REPEATED = {
    "500": Fault(_status(500, "InternalError")),
    "503": Fault(_status(503, "SlowDown", Retry_After="2")),
    "timeout": Fault(lambda *_: SILENT),
    "reset": Fault(lambda *_: GONE),
    "truncated body": Fault(_cut, _reads),
}
_SAID = {
    "403": Fault(_status(403, "AccessDenied")),
    "404": Fault(_status(404, "NoSuchKey"), lambda ask: ask.method != "DELETE"),  # or it is gone
    "412": Fault(_status(412, "PreconditionFailed")),
    "overlong body": Fault(_longer, _reads),
}
FAULTS = {
    **{name: replace(each, passes=True) for name, each in _REPEATED.items()},
    **_SAID,
    **{f"{name} on": replace(each, lasts=True) for name, each in (_REPEATED | _SAID).items()},
    "lost answer": Fault(_unanswered, passes=True),
    "lost PUT": Fault(_lost, _writes),
    "weak etags": Fault(_weak, lasts=True),
    "odd dates": Fault(_odd_dates, lasts=True),
    "stale pages": Fault(_stale, is_listing, lasts=True),
    "page twice": Fault(_page_again, _continues),
    "drip": Fault(_drip, lasts=True, passes=True),
}
"""Faults of servers, once or from a call on."""

SIGNALS = {"KILL": signal.SIGKILL, "INT": signal.SIGINT, "TERM": signal.SIGTERM}
DISK = {"EIO": errno.EIO, "denied": errno.EACCES, "full": errno.ENOSPC}


@contextmanager
def faulty(backend: Backend, tls: SSLContext | None = None) -> Iterator[Server]:
    server = Server(backend)

    class Handler(QuietHandler):
        wbufsize = -1

        def reply(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            headers = {name.lower(): text for name, text in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            said = server.answer(Ask(self.command, parts.path, query, headers, body))
            with suppress(OSError):  # a client that was stopped
                self.send(said)

        def send(self, said: Say) -> None:
            self.close_connection = said.status <= 0 or said.cut is not None
            if said is SILENT:
                self.rfile.read(1)
            if said is GONE:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if said.status <= 0:
                return
            self.send_response(said.status)
            for name, text in said.headers.items():
                for line in text.split("\n"):
                    self.send_header(name, line)
            if said.status != 204:
                self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            body = b"" if self.command == "HEAD" else said.body[: said.cut]
            for place in range(0, len(body), size := 1 if "X-Drip" in said.headers else 1 << 20):
                self.wfile.write(body[place : place + size])
                self.wfile.flush()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = reply  # noqa: N815

    with serving(Handler, tls) as server.endpoint:
        yield server


class Disk:
    """Calls of the operating system on a folder, seen by an audit hook, which stays.

    ``made`` are the numbers of those that need space.
    """

    EVENTS = ("open", "os.mkdir", "os.link", "os.rename", "os.truncate", "os.remove", "os.rmdir")

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.act: Callable[[], object] = int
        self.at, self.calls, self.lasts = -1, 0, False
        self.made: list[int] = []
        sys.addaudithook(self._event)

    @contextmanager
    def watched(
        self, folder: Path, at: int = -1, act: Callable[[], object] = int, *, lasts: bool = False
    ) -> Iterator[None]:
        """Count the calls of a block, and act at one, or at it and all others of its kind after."""
        self.folder, self.at, self.act, self.lasts, self.calls = folder, at, act, lasts, 0
        self.made = []
        try:
            yield
        finally:
            self.folder = None

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event not in self.EVENTS:
            return
        if isinstance(arguments[0], int) or f"{self.folder}/" not in os.fsdecode(arguments[0]):
            return
        if event == "os.mkdir" or (event == "open" and arguments[2] & os.O_CREAT):
            self.made.append(self.calls)
        self.calls += 1
        if self.calls - 1 == self.at or (self.lasts and 0 <= self.at < self.calls):
            self.act()


def failing(number: int) -> Callable[[], object]:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail
