"""S3 requests on objects, signed and parsed here: what moves the bytes.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from functools import lru_cache
from html import escape, unescape

import google_crc32c

from larder.errors import LarderError, RetryableError, StoreError
from larder.manifest.crc import format_crc32c
from larder.store.base import Buffer, ObjectInfo
from larder.store.http import Answer, BrokenError
from larder.store.s3_access import S3Access
from larder.store.s3_errors import Call, answer_of_body, s3_error
from larder.store.s3_read import S3Body, Span, storage_class
from larder.store.s3_sign import EMPTY_SHA256, UNSIGNED, encoded_path, encoded_query, signed

__all__ = ["SignedObjects", "crc32c_of"]

_META = "x-amz-meta-"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110: what the name of a header may be."""
_MOST_WAIT_SECONDS = 60.0


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
            return _info(call.key, answer)

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
            info = _info(call.key, answer)
        except BaseException:
            answer.close()
            raise
        return S3Body(info, _body(answer, call), answer.close)

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
        headers["x-amz-checksum-crc32c"] = _base64(crc32c)
        with self._send("PUT", full_key, call, headers=headers, body=[data], md5=md5) as answer:
            return _etag(answer), _verified(answer, crc32c)

    def copy(self, full_key: str, call: Call, source: str, if_match: str) -> str:
        """Copy an object on the server, with its content type and metadata; returns the etag.

        Args:
            full_key: The copy's key in the bucket.
            call: For messages.
            source: ``BUCKET/KEY`` of the object.
            if_match: Its etag.
        """
        headers = {**self._encryption(), **_copy_source(source, if_match)}
        with self._send("PUT", full_key, call, headers=headers) as answer:
            return _element(_document(answer, call), "ETag").strip('"')

    def delete(self, full_key: str, call: Call) -> None:
        """Remove an object."""
        self._send("DELETE", full_key, call).close()

    def begin_upload(self, full_key: str, call: Call, like: ObjectInfo | None) -> str:
        """Start a multipart upload; returns its ID."""
        headers = self.kept(like)
        headers |= {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
        with self._send("POST", full_key, call, query={"uploads": ""}, headers=headers) as answer:
            return _element(_document(answer, call), "UploadId")

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
            headers={"x-amz-checksum-crc32c": _base64(crc32c)},
            body=pieces,
            md5=md5,
            sha256=None if signed else UNSIGNED,
        ) as answer:
            return _etag(answer), _verified(answer, crc32c) is not None

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
        headers = _copy_source(source, if_match)
        last = span.offset + span.length - 1
        headers["x-amz-copy-source-range"] = f"bytes={span.offset}-{last}"
        query = {"partNumber": str(number), "uploadId": upload}
        with self._send("PUT", full_key, call, query=query, headers=headers) as answer:
            return _element(_document(answer, call), "ETag").strip('"')

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
            return _element(_document(answer, call), "ETag").strip('"')

    def list_parts(self, full_key: str, call: Call, upload: str) -> dict[int, str]:
        """The etags of the parts that were sent, by number."""
        found: dict[int, str] = {}
        after = "0"
        while True:
            query = {"uploadId": upload, "part-number-marker": after}
            with self._send("GET", full_key, call, query=query) as answer:
                text = _document(answer, call)
            for part in re.findall("<Part>(.*?)</Part>", text, re.DOTALL):
                found[int(_element(part, "PartNumber"))] = _element(part, "ETag").strip('"')
            following = _element(text, "NextPartNumberMarker")
            if _element(text, "IsTruncated") != "true" or following in ("", after):
                return found
            after = following

    def abort_upload(self, full_key: str, call: Call, upload: str) -> None:
        """Discard the parts."""
        self._send("DELETE", full_key, call, query={"uploadId": upload}).close()

    def list_page(self, query: Mapping[str, str], call: Call) -> bytes:
        """One answer to a request on the bucket itself."""
        with self._send("GET", "", call, query=query) as answer:
            return _read(answer, call)

    def clock_us(self, call: Call) -> int:
        """The server's time, microseconds since 1970 UTC; 0 if it does not say."""
        with self._answered("HEAD", "", {}, {}, [], EMPTY_SHA256, call) as answer:
            said = answer.headers.get("date", "")
        return _time_us(said) if said else 0

    def bucket_region(self, call: Call) -> str:
        """The region of the bucket, according to the server; empty if it does not say."""
        with self._answered("HEAD", "", {}, {}, [], EMPTY_SHA256, call) as answer:
            return answer.headers.get("x-amz-bucket-region", "")

    def kept(self, like: ObjectInfo | None) -> dict[str, str]:
        """The headers of a new object: content type and metadata of another one; encryption."""
        headers = self._encryption()
        if like is not None:
            if like.content_type:
                headers["content-type"] = _header_text(like.content_type)
            for name, text in (like.metadata or {}).items():
                if _NAME.fullmatch(name):  # other stores have names that no header can have
                    headers[f"{_META}{name.lower()}"] = _header_text(text)
        return headers

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
            raise _error(answer, call)

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
        with broken(call):
            return http.request(method, f"{path}?{text}" if text else path, sent, body)


@contextmanager
def broken(call: Call) -> Iterator[None]:
    """Raise what a broken connection means for a call."""
    try:
        yield
    except BrokenError as error:
        if "certificate" in str(error):
            hint = "check the endpoint's certificate, or set AWS_CA_BUNDLE"
            raise StoreError(
                "store.refused", "TLS fails", where=call.store_url, hint=hint
            ) from error
        raise RetryableError("store.unavailable", str(error), where=call.where) from error


def _error(answer: Answer, call: Call) -> LarderError:
    body = _read(answer, call).decode("utf-8", "replace")
    error = s3_error(
        answer_of_body(answer.status, body, answer.headers.get("x-amz-bucket-region", "")), call
    )
    wait = answer.headers.get("retry-after", "")
    if isinstance(error, RetryableError) and wait.isdigit():
        error.after_seconds = min(float(wait), _MOST_WAIT_SECONDS)
    return error


def _document(answer: Answer, call: Call) -> str:
    """The XML of an answer. S3 answers 200 before it knows whether a long operation succeeds.

    Raises:
        LarderError: The document is an error.
    """
    body = _read(answer, call).decode("utf-8", "replace")
    if "<Error>" in body:
        said = answer_of_body(500, body)
        raise s3_error(said, call)
    return body


def _read(answer: Answer, call: Call) -> bytes:
    with broken(call):
        return answer.read()


def _body(answer: Answer, call: Call) -> Iterator[bytes]:
    with broken(call):
        yield from answer


def _element(body: str, name: str) -> str:
    found = re.search(f"<{name}>(.*?)</{name}>", body, re.DOTALL)
    return unescape(found[1].strip()) if found else ""


def _copy_source(source: str, if_match: str) -> dict[str, str]:
    headers = {"x-amz-copy-source": encoded_path(f"/{source}")}
    if if_match:  # a report may not have it
        headers["x-amz-copy-source-if-match"] = f'"{if_match}"'
    return headers


def _sha256(pieces: Sequence[Buffer]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _base64(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def _etag(answer: Answer) -> str:
    return answer.headers.get("etag", "").strip('"')


def _verified(answer: Answer, crc32c: int) -> str | None:
    """The checksum that was sent, if the answer repeats it: then the server has compared it."""
    said = answer.headers.get("x-amz-checksum-crc32c")
    return format_crc32c(crc32c) if said == _base64(crc32c) else None


def _info(key: str, answer: Answer) -> ObjectInfo:
    headers = answer.headers
    total = headers.get("content-range", "").rpartition("/")[2]
    size_bytes = total if total.isdigit() else headers.get("content-length", "0")
    modified = headers.get("last-modified")
    return ObjectInfo(
        key,
        int(size_bytes),
        _etag(answer),
        _time_us(modified) if modified else 0,
        storage_class=storage_class(headers.get("x-amz-storage-class")),
        checksum=_checksum(headers),
        generation=headers.get("x-amz-version-id"),
        content_type=headers.get("content-type"),
        metadata={
            name[len(_META) :]: _plain_text(text)
            for name, text in headers.items()
            if name.startswith(_META)
        },
    )


@lru_cache(4096)
def _time_us(said: str) -> int:
    """A date of a header, microseconds since 1970 UTC; many objects have the same second."""
    return round(parsedate_to_datetime(said).timestamp() * 1e6)


def _checksum(headers: Mapping[str, str]) -> str | None:
    """The CRC32C of the whole content, if the server keeps it; one of parts ends in ``-N``."""
    said = headers.get("x-amz-checksum-crc32c", "")
    if len(said) != 8 or headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return f"crc32c:{base64.b64decode(said).hex()}"


def _header_text(text: str) -> str:
    """A value as it is sent: S3 encodes what is not ASCII as RFC 2047 does."""
    text = " ".join(text.split())
    if text.isascii():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode()).decode()}?="


def _plain_text(text: str) -> str:
    if not text.startswith("=?"):
        return text
    try:
        return str(make_header(decode_header(text)))
    except (LookupError, ValueError):
        return text
