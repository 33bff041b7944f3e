"""A small server that speaks the JSON API of GCS as Google documents it.

The emulator of the contract tests ignores conditions and page sizes, knows no accounts and no keys,
and finishes every copy at once; and no server fails on demand. This one does what the tests need of
that, and nothing else. Where it is unlike Google, no test can tell: docs/how-to lists what was only
tested here.

https://cloud.google.com/storage/docs/json_api/v1
"""

import base64
import email
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

import google_crc32c

from tests.support.http_server import Ask, Say, answering

UPDATED = "2026-11-21T06:41:29.125Z"
MODIFIED = "Sat, 21 Nov 2026 06:41:29 GMT"


KEPT = (
    *("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage"),
    *("contentType", "metadata"),
)
"""Fields that a copy has, too."""


def gcs_json(document: object, status: int = 200, **headers: str) -> Say:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Say(status, json.dumps(document).encode(), named)


def gcs_refusal(status: int, message: str = "", reason: str = "", **headers: str) -> Say:
    errors = [{"message": message, "reason": reason}]
    error = {"code": status, "message": message, "errors": errors}
    return gcs_json({"error": error}, status, **headers)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def crc32c(data: bytes) -> str:
    return b64(google_crc32c.value(data).to_bytes(4, "big"))


def http_date(time: str) -> str:
    return format_datetime(datetime.fromisoformat(time), usegmt=True)


@dataclass
class FakeGcs:
    """The server's state. A fault is asked before every request, and may answer instead."""

    endpoint: str = ""
    buckets: set[str] = field(default_factory=lambda: {"bucket"})
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    contents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    uploads: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[Ask] = field(default_factory=list)
    fault: Callable[[Ask], Say | None] = lambda _: None
    page_keys: int = 1000
    rewrite_calls: int = 1
    payer_needed: bool = False
    hash_headers: bool = True
    hash_separator: str = ","
    lock: threading.Lock = field(default_factory=threading.Lock)
    generation: int = 1000
    updated: str = UPDATED

    def add(self, name: str, data: bytes, bucket: str = "bucket", **more: Any) -> dict[str, Any]:
        self.generation += 1
        resource = {
            "name": name,
            "size": str(len(data)),
            "md5Hash": b64(hashlib.md5(data).digest()),
            "crc32c": crc32c(data),
            "generation": str(self.generation),
            "updated": self.updated,
            "storageClass": "STANDARD",
            "contentType": "application/octet-stream",
            **more,
        }
        self.objects[bucket, name] = resource
        self.contents[bucket, name] = data
        return resource

    def create_bucket(self, name: str) -> None:
        self.buckets.add(name)

    def lines(self, method: str = "") -> list[str]:
        return [ask.line for ask in self.asked if not method or ask.method == method]

    def answer(self, ask: Ask) -> Say:
        with self.lock:
            self.asked.append(ask)
            found = self.fault(ask)
            if found is not None:
                return found
            if self.payer_needed and "userProject" not in ask.query:
                message = "Bucket is requester pays bucket but no user project provided."
                return gcs_refusal(400, message, "required")
            return self._route(ask)

    def _route(self, ask: Ask) -> Say:
        if "/rewriteTo/" in ask.path:
            return self._rewrite(ask)
        if "upload_id" in ask.query:
            return self._upload(ask)
        parts = ask.path.removeprefix("/upload").removeprefix("/storage/v1/b/").split("/", 2)
        bucket = parts[0]
        if bucket not in self.buckets:
            return gcs_refusal(404, "The specified bucket does not exist.", "notFound")
        if ask.path.startswith("/upload"):
            return self._insert(ask, bucket)
        if len(parts) < 3:
            return gcs_json({"location": "US"}) if parts[1:] == [] else self._list(ask, bucket)
        return self._object(ask, bucket, unquote(parts[2]))

    def _list(self, ask: Ask, bucket: str) -> Say:
        first = ask.query.get("pageToken") or ask.query.get("startOffset", "")
        names = sorted(
            name
            for there, name in self.objects
            if there == bucket and name.startswith(ask.query.get("prefix", "")) and name >= first
        )
        size = min(self.page_keys, int(ask.query["maxResults"]))
        page: dict[str, Any] = {"items": [self.objects[bucket, name] for name in names[:size]]}
        if len(names) > size:
            page["nextPageToken"] = names[size]
        return gcs_json(page if names else {})

    def _object(self, ask: Ask, bucket: str, name: str) -> Say:
        resource = self.objects.get((bucket, name))
        wanted = ask.query.get("generation")
        if resource is None or wanted not in (None, resource["generation"]):
            return gcs_refusal(404, f"No such object: {bucket}/{name}", "notFound")
        if self._unmet(ask, bucket, name):
            return gcs_refusal(412, "At least one of the pre-conditions did not hold.")
        if ask.method == "DELETE":
            del self.objects[bucket, name], self.contents[bucket, name]
            return Say(204)
        if ask.query.get("alt") != "media":
            return gcs_json(resource)
        return self._media(ask, resource, self.contents[bucket, name])

    def _media(self, ask: Ask, resource: dict[str, Any], data: bytes) -> Say:
        assert "gzip" in ask.headers["accept-encoding"], "or Google would unpack gzip objects"
        headers = {
            "Content-Type": resource["contentType"],
            "Last-Modified": http_date(resource["updated"]),
            "x-goog-generation": resource["generation"],
            "x-goog-stored-content-length": resource["size"],
            "x-goog-storage-class": resource["storageClass"],
        }
        if self.hash_headers:
            hashes = [f"crc32c={resource['crc32c']}"]
            hashes += [f"md5={resource['md5Hash']}"] if "md5Hash" in resource else []
            headers["x-goog-hash"] = self.hash_separator.join(hashes)
        if "contentEncoding" in resource:
            headers["Content-Encoding"] = resource["contentEncoding"]
        span = ask.headers.get("range", "").removeprefix("bytes=")
        if not span:
            return Say(200, data, headers)
        first, _, last = span.partition("-")
        if int(first) >= len(data):
            return Say(416)
        part = data[int(first) : int(last) + 1 if last else None]
        headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return Say(206, part, headers)

    def _unmet(self, ask: Ask, bucket: str, name: str) -> bool:
        wanted = ask.query.get("ifGenerationMatch")
        there = self.objects.get((bucket, name), {"generation": "0"})
        return wanted not in (None, there["generation"])

    def _insert(self, ask: Ask, bucket: str) -> Say:
        if ask.query["uploadType"] == "resumable":
            upload = f"secret-{len(self.uploads)}"
            resource = json.loads(ask.body)
            assert ask.headers["x-upload-content-type"] == resource["contentType"]
            begun = {"bucket": bucket, "resource": resource, "query": ask.query, "data": b""}
            self.uploads[upload] = begun
            return Say(200, headers={"Location": f"{self.endpoint}{ask.path}?upload_id={upload}"})
        head = f"Content-Type: {ask.headers['content-type']}\r\n\r\n".encode()
        parts: Any = email.message_from_bytes(head + ask.body).get_payload()
        about, content = parts
        boundary = ask.headers["content-type"].partition("boundary=")[2].encode()
        data = ask.body.split(b"--" + boundary)[2].split(b"\r\n\r\n", 1)[1][:-2]
        resource = json.loads(about.get_payload())
        assert content["content-type"] == resource["contentType"]
        return self._store(ask, bucket, resource, data)

    def _store(self, ask: Ask, bucket: str, resource: dict[str, Any], data: bytes) -> Say:
        name = resource.pop("name")
        if self._unmet(ask, bucket, name):
            return gcs_refusal(412, "At least one of the pre-conditions did not hold.")
        for given, own in (("crc32c", crc32c(data)), ("md5Hash", b64(hashlib.md5(data).digest()))):
            if resource.get(given, own) != own:
                return gcs_refusal(400, f"Provided {given} does not match.", "invalid")
        if "kmsKeyName" in ask.query:
            resource["kmsKeyName"] = ask.query["kmsKeyName"]
        return gcs_json(self.add(name, data, bucket, **resource))

    def _upload(self, ask: Ask) -> Say:
        upload = self.uploads.get(ask.query["upload_id"])
        if upload is None:
            return gcs_refusal(404)
        if ask.method == "DELETE":
            del self.uploads[ask.query["upload_id"]]
            return Say(499)
        spread, _, total = ask.headers["content-range"].removeprefix("bytes ").partition("/")
        if spread != "*":
            first, last = map(int, spread.split("-"))
            assert first == len(upload["data"])
            assert last == first + len(ask.body) - 1
            assert total != "*" or len(ask.body) % (256 << 10) == 0 or first % (256 << 10) != 0
            upload["data"] += ask.body
        size = len(upload["data"])
        if total != "*" and int(total) == size:
            del self.uploads[ask.query["upload_id"]]
            inserted = Ask("POST", ask.path, upload["query"], {}, b"")
            return self._store(inserted, upload["bucket"], upload["resource"], upload["data"])
        return Say(308, headers={"Range": f"bytes=0-{size - 1}"} if size else {})

    def _rewrite(self, ask: Ask) -> Say:
        origin, _, target = ask.path.removeprefix("/storage/v1/b/").partition("/rewriteTo/b/")
        source = origin.split("/o/", 1)[0], unquote(origin.split("/o/", 1)[1])
        bucket, name = target.split("/o/", 1)[0], unquote(target.split("/o/", 1)[1])
        resource = self.objects.get(source)
        if resource is None:
            return gcs_refusal(404, f"No such object: {'/'.join(source)}", "notFound")
        if ask.query.get("ifSourceGenerationMatch") != resource["generation"]:
            return gcs_refusal(412, "At least one of the pre-conditions did not hold.")
        done = int(ask.query.get("rewriteToken", "token-0").partition("-")[2]) + 1
        if done < self.rewrite_calls:
            return gcs_json({"done": False, "rewriteToken": f"token-{done}"})
        more = {key: resource[key] for key in KEPT if key in resource}
        if "destinationKmsKeyName" in ask.query:
            more["kmsKeyName"] = ask.query["destinationKmsKeyName"]
        copy = self.add(name, self.contents[source], bucket, **more)
        return gcs_json({"done": True, "resource": copy})


@contextmanager
def fake_gcs() -> Iterator[FakeGcs]:
    state = FakeGcs()
    with answering(state.answer) as state.endpoint:
        yield state
    state.asked.clear()  # the handler, a class, may not be collected for a long time
    state.contents.clear()
