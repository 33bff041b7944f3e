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
from larder.store.calls import Call, Span, connection_errors
from larder.store.http import Answer
from larder.store.s3_access import S3Access
from larder.store.s3_answers import content, document, element, error_of, streamed
from larder.store.s3_headers import (
    compared_checksum,
    copy_source,
    crc32c_text,
    described,
    etag_of,
    object_info,
    time_us,
)
from larder.store.s3_read import S3Body
from larder.store.s3_sign import EMPTY_SHA256, UNSIGNED, encoded_path, encoded_query, signed

__all__ = ["SignedObjects", "crc32c_of"]


def crc32c_of(pieces: Sequence[Buffer]) -> int:
    """The CRC32C of a body in pieces."""
    crc = 0
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece if isinstance(piece, bytes) else bytes(piece))
    return crc


class SignedObjects:
    """The requests on the objects of one bucket. May be used by many threads.

    Args:
        access: Provides connections and credentials.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access

    def head(self, full_key: str, call: Call) -> ObjectInfo:
        """Describe an object; with its checksum, if the server keeps one of the whole content."""
        headers = {"x-amz-checksum-mode": "ENABLED"}
        with self._send("HEAD", full_key, call, headers=headers) as answer:
            return object_info(call.key, answer.headers)

    def open(self, full_key: str, call: Call, span: Span, if_match: str | None) -> S3Body:
        """Start reading a span of an object."""
        headers = {}
        if if_match is not None:
            headers["if-match"] = f'"{if_match}"'
        if span.length is not None:
            headers["range"] = f"bytes={span.offset}-{span.offset + span.length - 1}"
        elif span.offset:
            headers["range"] = f"bytes={span.offset}-"
        answer = self._send("GET", full_key, call, headers=headers)
        try:
            if headers.get("range") and "content-range" not in answer.headers:
                message = "the server ignores ranges"
                raise StoreError("store.refused", message, where=call.where)
            info = object_info(call.key, answer.headers)
        except BaseException:
            answer.close()
            raise
        return S3Body(info, streamed(answer, call), answer.close)

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
        headers = self.kept(like)
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

    def delete(self, full_key: str, call: Call) -> None:
        """Remove an object."""
        self._send("DELETE", full_key, call).close()

    def begin_upload(self, full_key: str, call: Call, like: ObjectInfo | None) -> str:
        """Start a multipart upload; returns its ID."""
        headers = self.kept(like)
        headers |= {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
        with self._send("POST", full_key, call, query={"uploads": ""}, headers=headers) as answer:
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
        found: dict[int, str] = {}
        after = "0"
        while True:
            query = {"uploadId": upload, "part-number-marker": after}
            with self._send("GET", full_key, call, query=query) as answer:
                text = document(answer, call)
            for part in re.findall("<Part>(.*?)</Part>", text, re.DOTALL):
                found[int(element(part, "PartNumber"))] = element(part, "ETag").strip('"')
            following = element(text, "NextPartNumberMarker")
            if element(text, "IsTruncated") != "true" or following in ("", after):
                return found
            after = following

    def abort_upload(self, full_key: str, call: Call, upload: str) -> None:
        """Discard the parts."""
        self._send("DELETE", full_key, call, query={"uploadId": upload}).close()

    def list_page(self, query: Mapping[str, str], call: Call) -> bytes:
        """One answer to a request on the bucket itself."""
        with self._send("GET", "", call, query=query) as answer:
            return content(answer, call)

    def clock_us(self, call: Call) -> int:
        """The server's time, microseconds since 1970 UTC; 0 if it does not say."""
        with self._answered("HEAD", "", {}, {}, [], EMPTY_SHA256, call) as answer:
            said = answer.headers.get("date", "")
        return time_us(said) if said else 0

    def bucket_region(self, call: Call) -> str:
        """The region of the bucket, according to the server; empty if it does not say."""
        with self._answered("HEAD", "", {}, {}, [], EMPTY_SHA256, call) as answer:
            return answer.headers.get("x-amz-bucket-region", "")

    def kept(self, like: ObjectInfo | None) -> dict[str, str]:
        """The headers of a new object: content type and metadata of another one; encryption."""
        return {**self._encryption(), **(described(like) if like else {})}

    def _encryption(self) -> dict[str, str]:
        key = self._access.access.kms_key
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
            LarderError: See `larder.store.s3_errors`.
        """
        sent = dict(headers or {})
        if md5 is not None:
            sent["content-md5"] = base64.b64encode(bytes.fromhex(md5)).decode()
            sha256 = UNSIGNED
        digest = sha256 or (_sha256(body) if body else EMPTY_SHA256)
        answer = self._answered(method, full_key, query or {}, sent, body, digest, call)
        if answer.status < 300:
            return answer
        with answer:
            raise error_of(answer, call)

    def _answered(
        self,
        method: str,
        full_key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Sequence[Buffer],
        sha256: str,
        call: Call,
    ) -> Answer:
        access = self._access
        http = access.http
        path = encoded_path(
            f"{http.path}/{access.bucket}/{full_key}"
            if full_key
            else f"{http.path}/{access.bucket}"
        )
        text = encoded_query(query)
        sent = {"host": http.host, **headers}
        if access.access.requester_pays:
            sent["x-amz-request-payer"] = "requester"
        keys, region = access.keys, access.settings.region
        sent = signed(method, path, text, sent, sha256, keys, region)
        with connection_errors(call):
            return http.request(method, f"{path}?{text}" if text else path, sent, body)


def _sha256(pieces: Sequence[Buffer]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
