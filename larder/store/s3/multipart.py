"""A multipart upload to S3, whose parts threads send in any order.

The upload is invisible until it is committed; one that was neither committed nor aborted (because
the process was killed) takes up storage until it is aborted, or a lifecycle rule
(AbortIncompleteMultipartUpload) does that.

How a part is proved to have arrived::

    the answer repeats its CRC32C                       the server has compared it (AWS)
    its etag is the MD5 of the bytes                    computed if the server does not repeat it
    the etag of the object is the MD5 of its content    some servers, such as rclone: then nothing
                                                        has to be computed, if the MD5 is known

Which of these a server does is learned from its first answers.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from larder.errors import LarderError, NotFoundError
from larder.store.base import Buffer, ObjectInfo, Upload, UploadedPart
from larder.store.calls import Call, Span
from larder.store.etags import is_md5
from larder.store.s3.objects import S3Objects


@dataclass(slots=True)
class Parts:
    """What is known about how a server treats parts; shared by its uploads.

    Attributes:
        repeats_checksum: Whether it repeats the CRC32C of a part; None if that is not known yet.
        whole_md5: Whether the etag of an object made of parts is the MD5 of its content.
    """

    repeats_checksum: bool | None = None
    whole_md5: bool | None = None


class S3Upload(Upload):
    """See `larder.store.base.Upload`.

    Args:
        objects: Sends the requests.
        full_key: Key of the object in the bucket.
        call: For messages.
        parts: What is known about the server.
        like: Has the content type and metadata of the new object.
        md5: MD5 of the whole content in hex, if it is known.
        resume: ID of an upload to continue; None starts one.
    """

    def __init__(
        self,
        objects: S3Objects,
        full_key: str,
        call: Call,
        parts: Parts,
        *,
        like: ObjectInfo | None,
        md5: str | None,
        resume: str | None,
    ) -> None:
        self._objects = objects
        self._full_key = full_key
        self._call = call
        self._parts = parts
        self._md5 = md5
        self._done = False
        self.id = resume or objects.begin_upload(full_key, call, like)

    @property
    def whole_md5(self) -> bool | None:
        """See `larder.store.base.Upload`."""
        return self._parts.whole_md5

    def there(self) -> Mapping[int, str] | None:
        """See `larder.store.base.Upload.there`."""
        try:
            return self._objects.list_parts(self._full_key, self._call, self.id)
        except NotFoundError:
            return None

    def send(self, number: int, pieces: Sequence[Buffer], crc32c: int) -> UploadedPart:
        """See `larder.store.base.Upload.send`."""
        known, md5 = self._parts, None
        optimistic = self._md5 is not None and known.whole_md5 is not False
        if not known.repeats_checksum and not optimistic:
            md5 = _md5(pieces)
        etag, repeated = self._objects.send_part(
            self._full_key,
            self._call,
            self.id,
            number,
            pieces,
            crc32c=crc32c,
            md5=md5,
            signed=False,
        )
        if known.repeats_checksum is None:
            known.repeats_checksum = repeated
        size_bytes = sum(map(len, pieces))
        return UploadedPart(number, size_bytes, etag, crc32c, proved=repeated or etag == md5)

    def send_copy(
        self, number: int, source: str, info: ObjectInfo, offset: int, length: int
    ) -> UploadedPart:
        """Have the server copy a range of an object; nothing is proved by its answer.

        Args:
            number: Number of the part.
            source: ``BUCKET/KEY`` of the object.
            info: The object.
            offset: Of the range.
            length: Of the range.
        """
        etag = self._objects.copy_part(
            self._full_key, self._call, self.id, number, source, info.etag, Span(offset, length)
        )
        return UploadedPart(number, length, etag, None, proved=False)

    def commit(self, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """See `larder.store.base.Upload.commit`."""
        etags = [part.etag for part in parts]
        completed(self._objects, self._full_key, self._call, self.id, etags)
        self._done = True
        # rclone's answer to the completion has another etag than the object.
        info = self._objects.head(self._full_key, self._call)
        if self._parts.whole_md5 is None:
            self._parts.whole_md5 = is_md5(info.etag)
        return info

    def abort(self) -> None:
        """See `larder.store.base.Upload.abort`."""
        if not self._done:
            self._done = True
            with suppress(LarderError):  # a lifecycle rule removes the parts
                self._objects.abort_upload(self._full_key, self._call, self.id)

    def leave(self) -> None:
        """See `larder.store.base.Upload.leave`."""
        self._done = True


def _md5(pieces: Sequence[Buffer]) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def etag_of_parts(etags: Sequence[str]) -> str:
    """S3's etag of a multipart object: the MD5 of the parts' MD5s, and their number."""
    try:
        joined = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"


def completed(
    objects: S3Objects, full_key: str, call: Call, upload: str, etags: Sequence[str]
) -> ObjectInfo:
    """Complete a multipart upload; only the etag of the result is always known.

    Raises:
        NotFoundError: The upload is gone, and the object is not made of these parts.
    """
    try:
        etag = objects.complete_upload(full_key, call, upload, etags)
    except NotFoundError:
        # The upload is gone if the answer to an earlier, successful request was lost.
        info = objects.head(full_key, call)
        if info.etag != etag_of_parts(etags):
            message = "the multipart upload is gone"
            raise NotFoundError("object.missing", message, where=call.where) from None
        return info
    if not etag:  # Ceph 16 does not return it here
        return objects.head(full_key, call)
    return ObjectInfo(call.key, 0, etag, time.time_ns() // 1000)


_PARTS: dict[str, Parts] = {}
_PARTS_LOCK = threading.Lock()


def parts_of(endpoint: str) -> Parts:
    """What is known about a server; one per process."""
    with _PARTS_LOCK:
        return _PARTS.setdefault(endpoint, Parts())
