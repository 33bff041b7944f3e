"""An S3 server in memory whose etags, dates and answers a test decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.http_server import QuietHandler, serving


class Asked(NamedTuple):
    """A request: ``path`` is ``BUCKET/KEY``, and headers have lower-case names."""

    method: str
    path: str
    headers: Mapping[str, str]


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass
class OddS3:
    """The server. Conditions are compared strongly, as RFC 9110 says.

    ``listed`` and ``sent`` make the etags of listings and of other answers from an MD5. ``answer``
    may answer a request in place of the server, with a status.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    endpoint: str = ""
    listed: str = '"{}"'
    sent: str = '"{}"'
    date: str = "2026-11-21T06:41:29.125Z"
    answer: Callable[[Asked], int | None] = lambda asked: None

    def handle(self, asked: Asked, query: Mapping[str, list[str]], body: bytes) -> Reply:
        self.asked.append(asked)
        if status := self.answer(asked) or self._refused(asked):
            return Reply(status, {})
        if "list-type" in query:
            return Reply(200, {}, self._page(asked.path.strip("/"), query))
        if asked.method in ("PUT", "DELETE"):
            return self._changed(asked, body)
        here = self.objects.get(asked.path)
        return Reply(404, {}) if here is None else self._content(asked, here)

    def _etag(self, data: bytes) -> str:
        return self.sent.format(hashlib.md5(data).hexdigest())

    def _refused(self, asked: Asked) -> int | None:
        here = self.objects.get(asked.path)
        etag = "" if here is None else self._etag(here)
        wanted = asked.headers.get("if-match", etag)
        other = wanted != etag or ("if-match" in asked.headers and etag.startswith("W/"))
        return 412 if other or (etag and "if-none-match" in asked.headers) else None

    def _changed(self, asked: Asked, body: bytes) -> Reply:
        if asked.method == "DELETE":
            self.objects.pop(asked.path, None)
            return Reply(204, {})
        if origin := asked.headers.get("x-amz-copy-source"):
            body = self.objects[unquote(origin).lstrip("/")]
        self.objects[asked.path] = body
        etag = self._etag(body)
        return Reply(200, {"ETag": etag}, f"<R><ETag>{escape(etag)}</ETag></R>".encode())

    def _content(self, asked: Asked, data: bytes) -> Reply:
        headers = {"ETag": self._etag(data)}
        if (span := asked.headers.get("range")) is None:
            return Reply(200, headers, data)
        first, _, last = span.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last or len(data)) + 1]
        content = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return Reply(206, headers | {"Content-Range": content}, part)

    def _page(self, bucket: str, query: Mapping[str, list[str]]) -> bytes:
        prefix = f"{bucket}/{query.get('prefix', [''])[0]}"
        after = f"{bucket}/{query.get('start-after', [''])[0]}"
        entries = ""
        for path in sorted(self.objects):
            if path.startswith(prefix) and path > after:
                data = self.objects[path]
                etag = escape(self.listed.format(hashlib.md5(data).hexdigest()))
                entries += f"<Contents><Key>{path.removeprefix(f'{bucket}/')}</Key>{self._dated()}"
                entries += f"<ETag>{etag}</ETag><Size>{len(data)}</Size></Contents>"
        text = f"<IsTruncated>false</IsTruncated>{entries}"
        return f"<ListBucketResult>{text}</ListBucketResult>".encode()

    def _dated(self) -> str:
        return f"<LastModified>{self.date}</LastModified>" if self.date else ""


@contextmanager
def odd_s3(**options: str) -> Iterator[OddS3]:
    """Serve an empty server."""
    server = OddS3(**options)  # type: ignore[arg-type]

    class Handler(QuietHandler):
        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            headers = {name.lower(): text for name, text in self.headers.items()}
            asked = Asked(self.command, unquote(parts.path).lstrip("/"), headers)
            query = parse_qs(parts.query, keep_blank_values=True)
            status, more, content = server.handle(asked, query, body)
            self.send_response_only(status)
            for name, text in more.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_DELETE = reply  # noqa: N815

    with serving(Handler) as server.endpoint:
        yield server
