"""S3 requests on objects, signed here: what moves the bytes.

Every request is sent once; `larder.store.retry` repeats calls. How a body is protected on its way::

    the MD5 of the content is known    Content-MD5, which the server compares
    otherwise                          the SHA-256 that is signed, which the server compares

and in addition by its CRC32C, for servers that know it: AWS compares it, and says so.

Reference: https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape

import google_crc32c

from larder.errors import StoreError
from larder.store.base import Buffer, ObjectInfo
from larder.store.calls import AnswerReader, Call, Span, connection_errors
from larder.store.http import Answer
from larder.store.interrupt import grace
from larder.store.s3.account import S3Bucket
from larder.store.s3.errors import content, document, element, error_of
from larder.store.s3.headers import (
    compared_checksum,
    copy_source,
    crc32c_text,
    described,
    etag_of,
    object_info,
    time_us,
)
from larder.store.s3.sign import EMPTY_SHA256, UNSIGNED, encoded_path, encoded_query, signed


def crc32c_of(pieces: Sequence[Buffer]) -> int:
    """The CRC32C of a body in pieces."""
    crc = 0
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece if isinstance(piece, bytes) else bytes(piece))
    return crc


class S3Objects:
    """The requests on the objects of one bucket. May be used by many threads.

    Args:
        bucket: Provides connections and credentials.
    """

    def __init__(self, bucket: S3Bucket) -> None:
        self.bucket = bucket

    def head(self, full_key: str, call: Call) -> ObjectInfo:
        """Describe an object; with its checksum, if the server keeps one of the whole content."""
        headers = {"x-amz-checksum-mode": "ENABLED"}
        with self._send("HEAD", full_key, call, headers=headers) as answer:
            return object_info(call.key, answer.headers)

    def open(self, full_key: str, call: Call, span: Span, if_match: str | None) -> AnswerReader:
        """Start reading a span of an object, which is not empty."""
        headers = {}
        if if_match is not None:
            headers["if-match"] = f'"{if_match}"'
        if span.range:
            headers["range"] = span.range
        answer = self._send("GET", full_key, call, headers=headers)
        if not span.begins(answer.headers):
            answer.close()
            message = "the server does not answer with the range that was requested"
            raise StoreError("store.refused", message, where=call.where)
        return AnswerReader(object_info(call.key, answer.headers), answer, span, call)

    def put(
        self,
        full_key: str,
        call: Call,
        data: Buffer,
        if_match: str | None,
        *,
        like: ObjectInfo | None = None,
        md5: str | None = None,
    ) -> tuple[str, str | None]:
        """Write an object in one request.

        Args:
            full_key: Its key in the bucket.
            call: For messages, and whether the object must be absent.
            data: Its content.
            if_match: The If-Match header, including quotes.
            like: Has the content type and metadata.
            md5: MD5 of the content in hex, if it is known.

        Returns:
            Its etag; and its CRC32C as `ObjectInfo.checksum`, if the server has compared it.
        """
        headers = self._kept(like)
        if call.if_absent:
            headers["if-none-match"] = "*"
        if if_match is not None:
            headers["if-match"] = if_match
        crc32c = crc32c_of([data])
        headers["x-amz-checksum-crc32c"] = crc32c_text(crc32c)
        with self._send("PUT", full_key, call, headers=headers, body=[data], md5=md5) as answer:
            return etag_of(answer.headers), compared_checksum(answer.headers, crc32c)

    def copy(self, full_key: str, call: Call, source: str, if_match: str) -> str:
        """Copy an object on the server, with its content type and metadata; returns the etag.

        Args:
            full_key: The copy's key in the bucket.
            call: For messages.
            source: ``BUCKET/KEY`` of the object.
            if_match: Its etag.
        """
        headers = {**self._encryption(), **copy_source(source, if_match)}
        with self._send("PUT", full_key, call, headers=headers) as answer:
            return element(document(answer, call), "ETag").strip('"')

    def delete(self, full_key: str, call: Call, if_match: str | None = None) -> None:
        """Remove an object; ``if_match`` is its etag."""
        headers = {} if if_match is None else {"if-match": f'"{if_match}"'}
        self._send("DELETE", full_key, call, headers=headers).close()

    def begin_upload(self, full_key: str, call: Call, like: ObjectInfo | None) -> str:
        """Start a multipart upload; returns its ID."""
        headers = self._kept(like)
        headers |= {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
        query = {"uploads": ""}
        with grace(), self._send("POST", full_key, call, query=query, headers=headers) as answer:
            return element(document(answer, call), "UploadId")

    def send_part(
        self,
        full_key: str,
        call: Call,
        upload: str,
        number: int,
        pieces: Sequence[Buffer],
        *,
        crc32c: int,
        md5: str | None,
        signed: bool,
    ) -> tuple[str, bool]:
        """Send one part of a multipart upload.

        Args:
            full_key: Key in the bucket.
            call: For messages.
            upload: ID of the upload.
            number: Number of the part, from 1.
            pieces: Its bytes.
            crc32c: Their CRC32C.
            md5: Their MD5 in hex, if it is known.
            signed: Whether the digest of the bytes is signed, if the MD5 is not known.

        Returns:
            Its etag, and whether the server says that it has compared the CRC32C.
        """
        with self._send(
            "PUT",
            full_key,
            call,
            query={"partNumber": str(number), "uploadId": upload},
            headers={"x-amz-checksum-crc32c": crc32c_text(crc32c)},
            body=pieces,
            md5=md5,
            sha256=None if signed else UNSIGNED,
        ) as answer:
            return etag_of(answer.headers), compared_checksum(answer.headers, crc32c) is not None

    def copy_part(
        self,
        full_key: str,
        call: Call,
        upload: str,
        number: int,
        source: str,
        if_match: str,
        span: Span,
    ) -> str:
        """Have the server copy a range of an object as one part; returns the part's etag."""
        assert span.length is not None
        headers = copy_source(source, if_match)
        last = span.offset + span.length - 1
        headers["x-amz-copy-source-range"] = f"bytes={span.offset}-{last}"
        query = {"partNumber": str(number), "uploadId": upload}
        with self._send("PUT", full_key, call, query=query, headers=headers) as answer:
            return element(document(answer, call), "ETag").strip('"')

    def complete_upload(self, full_key: str, call: Call, upload: str, etags: Sequence[str]) -> str:
        """Make an object of the parts; returns its etag, empty if the server does not say."""
        parts = "".join(
            f"<Part><ETag>&quot;{escape(etag)}&quot;</ETag><PartNumber>{n}</PartNumber></Part>"
            for n, etag in enumerate(etags, start=1)
        )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        text = f'<CompleteMultipartUpload xmlns="{space}">{parts}</CompleteMultipartUpload>'
        headers = {"content-type": "application/xml"}
        with self._send(
            "POST",
            full_key,
            call,
            query={"uploadId": upload},
            headers=headers,
            body=[text.encode()],
        ) as answer:
            return element(document(answer, call), "ETag").strip('"')

    def list_parts(self, full_key: str, call: Call, upload: str) -> dict[int, str]:
        """The etags of the parts that were sent, by number."""
        etags: dict[int, str] = {}
        after = "0"
        while True:
            query = {"uploadId": upload, "part-number-marker": after}
            with self._send("GET", full_key, call, query=query) as answer:
                text = document(answer, call)
            for part in re.findall("<Part>(.*?)</Part>", text, re.DOTALL):
                etags[int(element(part, "PartNumber"))] = element(part, "ETag").strip('"')
            following = element(text, "NextPartNumberMarker")
            if element(text, "IsTruncated") != "true" or following in ("", after):
                return etags
            after = following

    def abort_upload(self, full_key: str, call: Call, upload: str) -> None:
        """Discard the parts."""
        with grace():
            self._send("DELETE", full_key, call, query={"uploadId": upload}).close()

    def list_page(self, query: Mapping[str, str], call: Call) -> bytes:
        """One answer to a request on the bucket itself."""
        with self._send("GET", "", call, query=query) as answer:
            return content(answer, call)

    def clock_us(self, call: Call) -> int:
        """The server's time, microseconds since 1970 UTC; 0 if it does not say."""
        date = self._about_bucket(call).get("date", "")
        return time_us(date) if date else 0

    def bucket_region(self, call: Call) -> str:
        """The region of the bucket, according to the server; empty if it does not say."""
        return self._about_bucket(call).get("x-amz-bucket-region", "")

    def _kept(self, like: ObjectInfo | None) -> dict[str, str]:
        """The headers of a new object: content type and metadata of another one; encryption."""
        return {**self._encryption(), **(described(like) if like else {})}

    def _encryption(self) -> dict[str, str]:
        key = self.bucket.access.kms_key
        if key is None:
            return {}
        return {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": key,
        }

    def _send(
        self,
        method: str,
        full_key: str,
        call: Call,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Sequence[Buffer] = (),
        md5: str | None = None,
        sha256: str | None = None,
    ) -> Answer:
        """Send a request, and return the answer if it is not an error.

        Raises:
            LarderError: See `larder.store.s3.errors`.
        """
        sent = dict(headers or {})
        if md5 is not None:
            sent["content-md5"] = base64.b64encode(bytes.fromhex(md5)).decode()
            sha256 = UNSIGNED
        digest = sha256 or (_sha256(body) if body else EMPTY_SHA256)
        answer = self._answered(method, full_key, call, query or {}, sent, body, digest)
        if answer.status < 300:
            return answer
        with answer:
            raise error_of(answer, call)

    def _answered(
        self,
        method: str,
        full_key: str,
        call: Call,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Sequence[Buffer],
        sha256: str,
    ) -> Answer:
        """Sign a request and send it; the answer may be an error."""
        bucket, account = self.bucket, self.bucket.account
        path = f"{account.http.path}/{bucket.name}"
        path = encoded_path(f"{path}/{full_key}" if full_key else path)
        text = encoded_query(query)
        sent = {"host": account.http.host, **headers}
        if bucket.access.requester_pays:
            sent["x-amz-request-payer"] = "requester"
        region = account.settings.region
        sent = signed(method, path, text, sent, sha256, bucket.keys, region)
        with connection_errors(call):
            return account.http.request(method, f"{path}?{text}" if text else path, sent, body)

    def _about_bucket(self, call: Call) -> Mapping[str, str]:
        """The headers of an answer about the bucket, which may be an error."""
        with self._answered("HEAD", "", call, {}, {}, [], EMPTY_SHA256) as answer:
            return answer.headers


def _sha256(pieces: Sequence[Buffer]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
