"""An HTTP server with scripted answers, for what no real server answers on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.http_server import QuietHandler, serving


@dataclass(frozen=True)
class Say:
    """One answer; ``cut`` closes the connection after so many bytes of the body.

    A ``ranged`` one answers the range that was asked for, of the body; it comes after ``seconds``,
    or when the server ends.
    """

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    ranged: bool = False
    seconds: float = 0.0

    def part(self, asked: str) -> Say:
        first, _, last = asked.removeprefix("bytes=").partition("-")
        body = self.body[int(first) : int(last) + 1 if last else None]
        span = f"bytes {first}-{int(first) + len(body) - 1}/{len(self.body)}"
        return Say(206, body, {**self.headers, "Content-Range": span})

    @classmethod
    def error(cls, status: int, code: str, inside: str = "", **headers: str) -> Say:
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code>{inside}</Error>'
        return cls(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


@dataclass
class Script:
    """What is said, in turn (the last answer again and again), what was asked, and by which key."""

    answers: list[Say]
    endpoint: str = ""
    asked: list[str] = field(default_factory=list)
    signed_by: list[str] = field(default_factory=list)
    connections: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def next(self, request: str) -> Say:
        self.asked.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def scripted_s3(*answers: Say, refuses_checksums: bool = False) -> Iterator[Script]:
    script = Script(list(answers))

    class Handler(QuietHandler):
        def setup(self) -> None:
            script.connections += 1
            super().setup()

        def reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            say = script.next(f"{self.command} {self.path}")
            _, _, signature = self.headers.get("Authorization", "").partition("Credential=")
            script.signed_by.append(signature.partition("/")[0])
            if refuses_checksums and "x-amz-checksum-" in str(self.headers).lower():
                say = Say.error(501, "NotImplemented")
            if say.ranged and "Range" in self.headers:
                say = say.part(self.headers["Range"])
            script.over.wait(say.seconds)
            body = say.body.encode()
            self.send_response_only(say.status)
            for name, text in say.headers.items():
                self.send_header(name, text)
            if "Content-Length" not in say.headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                with suppress(ConnectionError):  # a client that was stopped
                    self.wfile.write(body if say.cut is None else body[: say.cut])
            self.close_connection = say.cut is not None

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = reply  # noqa: N815

    with serving(Handler) as script.endpoint:
        try:
            yield script
        finally:
            script.over.set()
