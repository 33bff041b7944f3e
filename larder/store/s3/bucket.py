"""A bucket, its account, and signed requests on its objects.

Every request is sent once; `larder.store.retry` repeats calls. Protection of a body in transit::

    the MD5 of the content is known    Content-MD5, which the server compares
    otherwise                          the SHA-256 that is signed, which the server compares

A CRC32C header is sent too, which AWS compares and repeats. Some servers refuse this header;
AWS_REQUEST_CHECKSUM_CALCULATION=when_required omits it.

Reference:
https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress

import google_crc32c

from larder.config.urls import Access
from larder.errors import LarderError, NotFoundError, ObjectError, StoreError
from larder.store.base import UNKNOWN_US, Buffer, ObjectInfo
from larder.store.buckets import Bucket, RenewedKeys, SharedAccounts, connections
from larder.store.calls import Call, connection_errors
from larder.store.etags import is_weak
from larder.store.http import Answer
from larder.store.interrupt import grace
from larder.store.s3.answers import (
    CHECKSUM_HINT,
    REGION_UNTOLD,
    compared_checksum,
    content,
    crc32c_text,
    described,
    elsewhere,
    error_of,
    etag_of,
    object_info,
    time_us,
)
from larder.store.s3.credentials import current_keys, find_settings
from larder.store.s3.sign import EMPTY_SHA256, UNSIGNED, Keys, encoded_path, encoded_query, signed

_CHECKSUM = "x-amz-checksum-"
_OF_NO_OTHER_CAUSE = ("store.refused", "object.unreadable")


class S3Account:
    """Region, endpoint, connections and keys; refused or expiring keys are looked up again."""

    def __init__(self, access: Access, store_url: str) -> None:
        self.repeats_checksum: bool | None = None
        """Whether the server's answers repeat the CRC32C of a part; None if not known yet."""
        self.whole_md5: bool | None = None
        """Whether the etag of an object made of parts is the MD5 of its content, likewise."""
        self.settings = find_settings(store_url, access)
        self.http = connections(self.settings.endpoint, access)
        self.keys: RenewedKeys[Keys | None] = RenewedKeys(self._ask)
        self._access = access

    def _ask(self, store_url: str, refused: bool) -> tuple[Keys | None, float]:
        if refused:
            self.settings = find_settings(store_url, self._access)
        return current_keys(self.settings, store_url, self._access)


shared_account = SharedAccounts(S3Account, ("AWS_",)).get


def crc32c_of(pieces: Sequence[Buffer]) -> int:
    crc = 0
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece if isinstance(piece, bytes) else bytes(piece))
    return crc


class S3Bucket(Bucket[S3Account]):
    def __init__(self, name: str, store_url: str, access: Access) -> None:
        super().__init__(name, store_url, access, shared_account)

    def head(self, call: Call) -> ObjectInfo:
        """Describe an object, with the checksum of the whole content if the server keeps it."""
        try:
            return self._head(call)
        except NotFoundError:
            raise
        except (ObjectError, StoreError):
            # The answer to a HEAD request has no body, so refused keys do not show. A GET request
            # renews them.
            self.send("GET", call).close()
            return self._head(call)

    def _head(self, call: Call) -> ObjectInfo:
        with self.send("HEAD", call, headers={"x-amz-checksum-mode": "ENABLED"}) as answer:
            return object_info(call, answer.headers)

    def put(
        self,
        call: Call,
        data: Buffer,
        if_match: str | None,
        *,
        like: ObjectInfo | None = None,
        md5: str | None = None,
    ) -> ObjectInfo:
        """Write an object; ``if_match`` is the header's value with its quotes."""
        headers = self.kept_headers(like)
        if call.if_absent:
            headers["if-none-match"] = "*"
        if if_match is not None:
            headers["if-match"] = if_match
        crc32c = crc32c_of([data])
        headers["x-amz-checksum-crc32c"] = crc32c_text(crc32c)
        with self.send("PUT", call, headers=headers, body=[data], md5=md5) as answer:
            etag = etag_of(answer.headers)
            checksum = compared_checksum(answer.headers, crc32c)
        size_bytes = len(memoryview(data).cast("B"))
        return ObjectInfo(call.key, size_bytes, etag, time.time_ns() // 1000, checksum=checksum)

    def abort_upload(self, call: Call, upload: str) -> None:
        with grace():
            self.send("DELETE", call, query={"uploadId": upload}).close()

    def list_page(self, query: Mapping[str, str]) -> bytes:
        call = Call(self.store_url)
        with self.send("GET", call, query=query) as answer:
            return content(answer, call)

    def clock_us(self) -> int:
        """Return the server's time, microseconds since 1970 UTC; 0 if unknown."""
        with suppress(ValueError):
            now_us = time_us(self._described().get("date"))
            return 0 if now_us == UNKNOWN_US else now_us
        return 0

    def _described(self) -> Mapping[str, str]:
        """Return the headers of an answer about the bucket; the answer may be an error."""
        account, call = self.account, Call(self.store_url)
        keys = account.keys.use(lambda keys: keys, self.store_url)
        target, sent = self._signed("HEAD", call, {}, {}, EMPTY_SHA256, keys)
        with connection_errors(call), account.http.request("HEAD", target, sent) as answer:
            return answer.headers

    def kept_headers(self, like: ObjectInfo | None) -> dict[str, str]:
        """Return a new object's headers: encryption, and content type and metadata of ``like``."""
        return {**self.encryption(), **(described(like) if like else {})}

    def encryption(self) -> dict[str, str]:
        key = self.access.kms_key
        if key is None:
            return {}
        return {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": key,
        }

    def send(
        self,
        method: str,
        call: Call,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Sequence[Buffer] = (),
        md5: str | None = None,
        sha256: str | None = None,
    ) -> Answer:
        """Send a request; return the answer, or raise its error."""
        sent = dict(headers or {})
        if not self.account.settings.checksums:
            sent = {name: text for name, text in sent.items() if not name.startswith(_CHECKSUM)}
        if md5 is not None:
            sent["content-md5"] = base64.b64encode(bytes.fromhex(md5)).decode()
            sha256 = UNSIGNED
        digest = sha256 or (digest_of("sha256", body) if body else EMPTY_SHA256)

        def send(keys: Keys | None) -> Answer:
            target, all_headers = self._signed(method, call, query or {}, sent, digest, keys)
            with connection_errors(call):
                answer = self.account.http.request(method, target, all_headers, body)
            if answer.status < 300:
                return answer
            with answer:
                error = error_of(answer, call)
            refused = answer.status in (400, 501) and error.code in _OF_NO_OTHER_CAUSE
            if refused and any(name.startswith(_CHECKSUM) for name in sent):
                error.hint = error.hint or CHECKSUM_HINT
            if error.message == REGION_UNTOLD:
                with suppress(LarderError):
                    error = elsewhere(self._described().get("x-amz-bucket-region", ""), call)
            raise error

        return self.account.keys.use(send, self.store_url)

    def get_each(
        self, objects: Iterable[tuple[Call, str]], ahead: int
    ) -> Generator[Answer, None, None]:
        """See `larder.store.buckets.BucketStore._answers`."""
        account = self.account
        keys = account.keys.use(lambda keys: keys, self.store_url)
        requests = (
            self._signed("GET", call, {}, if_match_header(etag or None), EMPTY_SHA256, keys)
            for call, etag in objects
        )
        return account.http.get_each(requests, ahead)

    def _signed(
        self,
        method: str,
        call: Call,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        sha256: str,
        keys: Keys | None,
    ) -> tuple[str, dict[str, str]]:
        account = self.account
        path = f"{account.http.path}/{self.name}"
        path = encoded_path(f"{path}/{call.full_key}" if call.full_key else path)
        text = encoded_query(query) if query else ""
        sent = {"host": account.http.host, **headers}
        if self.access.requester_pays:
            sent["x-amz-request-payer"] = "requester"
        sent = signed(method, path, text, sent, sha256, keys, account.settings.region)
        return f"{path}?{text}" if text else path, sent


def if_match_header(etag: str | None) -> dict[str, str]:
    """Return the header for an etag; none for a weak etag, which meets no condition."""
    return {} if etag is None or is_weak(etag) else {"if-match": f'"{etag}"'}


def digest_of(algorithm: str, pieces: Sequence[Buffer]) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
