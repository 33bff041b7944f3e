"""A small server that speaks S3 as AWS documents it, without multipart uploads.

Its whole state is two dictionaries, so that a test can keep it, and set it back. The real servers
of `tests.support.servers` are what stores are tested with; this one is for faults and odd answers.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
"""

import hashlib
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from tests.support.fake_gcs import http_date
from tests.support.http_server import Ask, Say

Place = tuple[str, str]


def refusal(status: int, code: str, **headers: str) -> Say:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'.encode()
    return Say(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


MISSING = refusal(404, "NoSuchKey")
UNMET = refusal(412, "PreconditionFailed")


@dataclass
class FakeS3:
    """State of the server.

    ``md5``: whether etags are the MD5 of the content; ``conditional``: whether writes keep
    conditions; ``listed`` and ``sent``: how etags are written in listings and elsewhere. Conditions
    are compared strongly, as RFC 9110 says.
    """

    md5: bool = True
    conditional: bool = True
    page_keys: int = 7
    listed: str = '"{}"'
    sent: str = '"{}"'
    objects: dict[Place, dict[str, str]] = field(default_factory=dict)
    contents: dict[Place, bytes] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, ask: Ask) -> Say:
        bucket, _, key = unquote(ask.path).removeprefix("/").partition("/")
        with self.lock:
            if not key:
                return self._list(ask, bucket)
            if ask.method == "PUT":
                return self._put(ask, (bucket, key))
            if ask.method == "DELETE":
                return self._delete(ask, (bucket, key))
            return self._get(ask, (bucket, key))

    def _list(self, ask: Ask, bucket: str) -> Say:
        prefix = ask.query.get("prefix", "")
        if "uploads" in ask.query:
            return Say(200, b"<ListMultipartUploadsResult/>")
        after = ask.query.get("continuation-token") or ask.query.get("start-after", "")
        found = sorted(
            key
            for there, key in self.objects
            if there == bucket and key.startswith(prefix) and key > after
        )
        page, more = found[: self.page_keys], len(found) > self.page_keys
        items = "".join(self._item((bucket, key)) for key in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{items}"
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        encoding = "<EncodingType>url</EncodingType>"
        return Say(
            200,
            f'<ListBucketResult xmlns="{space}">{encoding}{body}</ListBucketResult>'.encode(),
        )

    def _item(self, place: Place) -> str:
        about = self.objects[place]
        return (
            f"<Contents><Key>{quote(place[1])}</Key>"
            f"<LastModified>{about['modified']}</LastModified>"
            f"<ETag>{escape(self.listed.format(about['etag']))}</ETag>"
            f"<Size>{len(self.contents[place])}</Size></Contents>"
        )

    def _get(self, ask: Ask, place: Place) -> Say:
        if place not in self.objects:
            return MISSING
        about, data = self.objects[place], self.contents[place]
        if not self._is(about["etag"], ask.headers.get("if-match")):
            return UNMET
        headers = {
            "ETag": self.sent.format(about["etag"]),
            "Last-Modified": http_date(about["modified"]),
            "Content-Type": about["type"],
        }
        span = ask.headers.get("range", "").removeprefix("bytes=")
        if not span:
            return Say(200, data, headers)
        first, _, last = span.partition("-")
        if int(first) >= len(data):
            return refusal(416, "InvalidRange")
        part = data[int(first) : int(last) + 1 if last else None]
        headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return Say(206, part, headers)

    def _put(self, ask: Ask, place: Place) -> Say:
        source = unquote(ask.headers.get("x-amz-copy-source", "")).removeprefix("/")
        if not source:
            if self._unmet(ask, place):
                return UNMET
            etag = self._store(place, ask.body, ask.headers.get("content-type", ""))
            return Say(200, headers={"ETag": self.sent.format(etag)})
        bucket, _, key = source.partition("/")
        if (bucket, key) not in self.objects:
            return MISSING
        about = self.objects[bucket, key]
        if not self._is(about["etag"], ask.headers.get("x-amz-copy-source-if-match")):
            return UNMET
        etag = self._store(place, self.contents[bucket, key], about["type"])
        return Say(
            200, f"<CopyObjectResult><ETag>&quot;{etag}&quot;</ETag></CopyObjectResult>".encode()
        )

    def _unmet(self, ask: Ask, place: Place) -> bool:
        if not self.conditional:
            return False
        there = self.objects.get(place, {}).get("etag", "")
        if ask.headers.get("if-none-match") == "*" and there:
            return True
        return not self._is(there, ask.headers.get("if-match"))

    def _is(self, etag: str, wanted: str | None) -> bool:
        """Whether a condition is met; that of a weak etag never is."""
        return wanted is None or (wanted == self.sent.format(etag) and not wanted.startswith("W/"))

    def _store(self, place: Place, data: bytes, kind: str) -> str:
        digest = hashlib.md5(data).hexdigest()
        etag = digest if self.md5 else hashlib.sha256(data).hexdigest()[:32]
        modified = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        kind = kind or "binary/octet-stream"
        self.objects[place] = {"etag": etag, "modified": modified, "type": kind}
        self.contents[place] = data
        return etag

    def _delete(self, ask: Ask, place: Place) -> Say:
        if self._unmet(ask, place):
            return UNMET
        self.objects.pop(place, None)
        self.contents.pop(place, None)
        return Say(204)
