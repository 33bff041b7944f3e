"""An HTTP server with scripted answers, for what no real server answers on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support import http_server
from tests.support.http_server import Ask, answering


@dataclass(frozen=True)
class Say:
    """One answer; it comes after ``seconds``, or when the server ends."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    seconds: float = 0.0

    @classmethod
    def error(cls, status: int, code: str, inside: str = "", **headers: str) -> Say:
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code>{inside}</Error>'
        return cls(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


@dataclass
class Script:
    """What is said, in turn (the last answer again and again), what was asked, and by which key."""

    answers: list[Say]
    refuses_checksums: bool
    endpoint: str = ""
    asked: list[str] = field(default_factory=list)
    signed_by: list[str] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, ask: Ask) -> http_server.Say:
        self.asked.append(f"{ask.method} {ask.target}")
        self.ports.add(ask.port)
        _, _, signature = ask.headers.get("authorization", "").partition("Credential=")
        self.signed_by.append(signature.partition("/")[0])
        say = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if self.refuses_checksums and "x-amz-checksum-" in str(ask.headers):
            say = Say.error(501, "NotImplemented")
        self.over.wait(say.seconds)
        return http_server.Say(say.status, say.body.encode(), say.headers, say.cut)


@contextmanager
def scripted_s3(*answers: Say, refuses_checksums: bool = False) -> Iterator[Script]:
    script = Script(list(answers), refuses_checksums)
    with answering(script.answer) as script.endpoint:
        try:
            yield script
        finally:
            script.over.set()
