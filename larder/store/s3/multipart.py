"""S3 objects written in parts: uploads with parts in any order, and streams.

An upload is invisible until it is committed. The upload of a killed process takes up storage until
a clean, a later run (`larder.copy.uploads`) or a lifecycle rule (AbortIncompleteMultipartUpload)
aborts it.

Proofs that a part has arrived::

    the answer repeats its CRC32C                       the server has compared it (AWS)
    its etag is the MD5 of the bytes                    computed if the server does not repeat it
    the etag of the object is the MD5 of its content    some servers, such as rclone: nothing is
                                                        computed for a part

A server may still assemble the parts wrongly. The etag of the object proves their order if it is
made of the parts' etags or is the MD5 of the content. The server's checksum of the whole proves it
too. If none of these decides, the object is read.

The first answers of a server show which proofs it gives.

Limits: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (10,000 parts of 5 MiB
to 5 GiB).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from html import escape

import google_crc32c

from larder.errors import LarderError, NotFoundError, ObjectError
from larder.manifest.digest import combined_crc32c, format_crc32c
from larder.store.base import BucketPrefix, Buffer, ObjectInfo, Upload, UploadedPart
from larder.store.buckets import PART_BYTES, PartsWriter
from larder.store.calls import Call, connection_errors
from larder.store.etags import are_equal, etag_of_parts, is_md5, plain_etag
from larder.store.interrupt import grace
from larder.store.retry import RetryPolicy, RetryUpload, repeated
from larder.store.s3.answers import (
    compared_checksum,
    copy_source,
    crc32c_text,
    document,
    element,
    etag_of,
)
from larder.store.s3.bucket import S3Bucket, crc32c_of, digest_of
from larder.store.s3.sign import UNSIGNED

_PARTS_PER_STEP = 1000
_MOST_PART_BYTES = 2 << 30


class S3Upload(Upload):
    """See `larder.store.base.Upload`.

    With ``signed``, the server compares each part with its signed SHA-256, so no MD5 is computed.
    """

    def __init__(
        self,
        bucket: S3Bucket,
        call: Call,
        *,
        like: ObjectInfo | None = None,
        md5: str | None = None,
        resume: str | None = None,
        signed: bool = False,
    ) -> None:
        self._bucket = bucket
        self._call = call
        self._account = bucket.account
        self._md5 = md5
        self._signed = signed
        self._done = False
        self._resumed = resume is not None
        self.id = resume or self._begun(like)

    def _begun(self, like: ObjectInfo | None) -> str:
        headers = self._bucket.kept_headers(like)
        headers |= {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}
        query = {"uploads": ""}
        with grace(), self._bucket.send("POST", self._call, query=query, headers=headers) as answer:
            return element(document(answer, self._call), "UploadId")

    @property
    def whole_md5(self) -> bool | None:
        account = self._account
        if account.whole_md5 is None and account.repeats_checksum:
            return False
        return account.whole_md5

    def sent(self) -> Mapping[int, str] | None:
        etags: dict[int, str] = {}
        after = "0"
        while True:
            query = {"uploadId": self.id, "part-number-marker": after}
            try:
                with self._bucket.send("GET", self._call, query=query) as answer:
                    text = document(answer, self._call)
            except NotFoundError:
                return None
            for part in text.split("<Part>")[1:]:
                if (number := element(part, "PartNumber")).isdecimal():  # others are sent again
                    etags[int(number)] = plain_etag(element(part, "ETag"))
            following = element(text, "NextPartNumberMarker")
            if element(text, "IsTruncated") != "true" or following in ("", after):
                return etags
            after = following

    def send(self, number: int, pieces: Sequence[Buffer], crc32c: int) -> UploadedPart:
        account, md5 = self._account, None
        # If no MD5 is known, the caller hashes the content of a new upload, to compare the etag.
        hashes = account.whole_md5 and not self._resumed
        optimistic = hashes if self._md5 is None else account.whole_md5 is not False
        if not (account.repeats_checksum or optimistic or self._signed):
            md5 = digest_of("md5", pieces)
        with self._bucket.send(
            "PUT",
            self._call,
            query=self._part(number),
            headers={"x-amz-checksum-crc32c": crc32c_text(crc32c)},
            body=pieces,
            md5=md5,
            sha256=None if self._signed else UNSIGNED,
        ) as answer:
            etag = etag_of(answer.headers)
            compared = compared_checksum(answer.headers, crc32c) is not None
        if account.repeats_checksum is None:
            account.repeats_checksum = compared
        size_bytes = sum(map(len, pieces))
        return UploadedPart(number, size_bytes, etag, crc32c, proved=compared or etag == md5)

    def send_copy(
        self, number: int, source: BucketPrefix, info: ObjectInfo, offset: int, length: int
    ) -> UploadedPart:
        headers = copy_source(source, info)
        headers["x-amz-copy-source-range"] = f"bytes={offset}-{offset + length - 1}"
        query = self._part(number)
        with self._bucket.send("PUT", self._call, query=query, headers=headers) as answer:
            etag = plain_etag(element(document(answer, self._call), "ETag"))
        return UploadedPart(number, length, etag, None, proved=False)

    def _part(self, number: int) -> dict[str, str]:
        return {"partNumber": str(number), "uploadId": self.id}

    def commit(self, parts: Sequence[UploadedPart]) -> ObjectInfo:
        if not self._done:
            self._complete([part.etag for part in parts])
            self._done = True
        # Ceph 16 answers without an etag, and rclone with a wrong etag.
        info = self._bucket.head(self._call)
        if self._account.whole_md5 is None:
            self._account.whole_md5 = is_md5(info.etag)
        return info

    def _complete(self, etags: Sequence[str]) -> None:
        parts = "".join(
            f"<Part><ETag>&quot;{escape(etag.removeprefix('W/'))}&quot;</ETag><PartNumber>{n}</PartNumber></Part>"
            for n, etag in enumerate(etags, start=1)
        )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        text = f'<CompleteMultipartUpload xmlns="{space}">{parts}</CompleteMultipartUpload>'
        headers, body = {"content-type": "application/xml"}, [text.encode()]
        send = partial(self._bucket.send, "POST", self._call, query={"uploadId": self.id})
        try:
            with send(headers=headers, body=body) as answer:
                document(answer, self._call)
        except NotFoundError:
            # The upload is gone if the answer to an earlier, successful request was lost.
            if not are_equal(self._bucket.head(self._call).etag, etag_of_parts(etags)):
                message, where = "the multipart upload is gone", self._call.where
                raise NotFoundError("object.missing", message, where=where) from None

    def abort(self) -> None:
        if not self._done:
            self._done = True
            with suppress(LarderError):  # a lifecycle rule removes the parts
                self._bucket.abort_upload(self._call, self.id)

    def leave(self) -> None:
        self._done = True


def part_size_bytes(index: int) -> int:
    """Return the size of a part, counted from 0: it doubles every thousand parts, up to 2 GiB.

    So 10,000 parts hold 5 TiB, the maximum of an object, even if its size is unknown in advance.
    """
    return min(PART_BYTES << (index // _PARTS_PER_STEP), _MOST_PART_BYTES)


class S3Writer(PartsWriter):
    """Memory holds the parts being sent and at most one more.

    An object that fits into one part is written with a single PUT, so that its etag is the MD5 of
    its content. The caller cannot send the bytes of a stream again, so requests are repeated here.
    """

    def __init__(
        self,
        bucket: S3Bucket,
        call: Call,
        like: ObjectInfo | None,
        parts: int,
        policy: RetryPolicy,
    ) -> None:
        super().__init__(parts)
        self._bucket = bucket
        self._call = call
        self._like = like
        self._policy = policy
        self._most_sending = parts
        self._upload: Upload | None = None
        self._parts: list[Future[UploadedPart]] = []
        self._md5 = hashlib.md5(usedforsecurity=False)

    def _part_bytes(self) -> int:
        return part_size_bytes(len(self._parts))

    def _send(self) -> None:
        if self._upload is None:
            begin = partial(S3Upload, self._bucket, self._call, like=self._like, signed=True)
            self._upload = RetryUpload(repeated(begin, self._policy), self._policy)
        if len(self._parts) >= self._most_sending:
            self._parts[-self._most_sending].result()
        part = self._taken()
        if self._upload.whole_md5 is not False:
            self._md5.update(part)
        send = partial(_sent, self._upload, len(self._parts) + 1, part)
        self._parts.append(self._in_thread(send))

    def _commit(self) -> ObjectInfo:
        if self._upload is None:
            put = partial(self._bucket.put, self._call, self._buffer, None, like=self._like)
            return repeated(put, self._policy)
        if self._buffer:
            self._send()
        parts = [part.result() for part in self._parts]
        info = self._upload.commit(parts)
        sent = format_crc32c(combined_crc32c((part.crc32c or 0, part.size_bytes) for part in parts))
        etags = etag_of_parts([part.etag for part in parts]), self._md5.hexdigest()
        if info.etag in etags or info.checksum == sent:
            return info
        stored = format_crc32c(repeated(self._stored_crc32c, self._policy))
        if stored == sent:
            return info
        with suppress(LarderError):
            self._bucket.send("DELETE", self._call).close()
        message = f"the store has assembled {stored}, but {sent} was sent"
        hint = "the object was removed; run again"
        raise ObjectError("object.mismatch", message, where=self._call.where, hint=hint)

    def _stored_crc32c(self) -> int:
        with self._bucket.send("GET", self._call) as answer, connection_errors(self._call):
            crc32c: int = 0
            for piece in answer:
                crc32c = google_crc32c.extend(crc32c, bytes(piece))
            return crc32c

    def _cancel(self) -> None:
        if self._upload is not None:
            self._upload.abort()


def _sent(upload: Upload, number: int, part: bytearray) -> UploadedPart:
    return upload.send(number, [part], crc32c_of([part]))
