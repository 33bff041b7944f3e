"""S3 objects through obstore: the fast way, for keys that it accepts unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError

from larder.errors import LarderError, ObjectError
from larder.store.base import Buffer, ObjectInfo
from larder.store.s3_access import S3Access
from larder.store.s3_errors import Call, answer_of_text, s3_error, unanswered
from larder.store.s3_read import S3Body, Span, storage_class

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, PutMode

__all__ = ["NoRangesError", "ObstoreObjects"]

_CHUNK_BYTES = 1 << 20
_HEADERS = {
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Type",
    "Storage-Class",
}


class NoRangesError(Exception):
    """The server answers ranges with status 200, which obstore refuses (rclone, for example)."""


class ObstoreObjects:
    """The four calls on one object.

    Args:
        access: Provides the client.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access

    def head(self, full_key: str, call: Call) -> ObjectInfo:
        """Describe an object."""
        with self._errors(call):
            # Not obstore.head(), which returns neither the storage class nor the metadata.
            return _info(
                call.key, obstore.get(self._access.obstore, full_key, options={"head": True})
            )

    def open(self, full_key: str, call: Call, span: Span, if_match: str | None) -> S3Body:
        """Start reading a span of an object.

        Raises:
            NoRangesError: See there.
        """
        options: GetOptions = {}
        if if_match is not None:
            options["if_match"] = f'"{if_match}"'
        if span.length is not None:
            options["range"] = (span.offset, span.offset + span.length)
        elif span.offset:
            options["range"] = {"offset": span.offset}
        with self._errors(call):
            result = obstore.get(self._access.obstore, full_key, options=options)
            info = _info(call.key, result)
            stream = result.stream(min_chunk_size=_CHUNK_BYTES)
        return S3Body(info, self._chunks(stream, call), lambda: None)

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
        """Write an object in one request, with a signed payload; see `SignedObjects.put`.

        Args:
            full_key: Its key in the bucket.
            call: For messages, and whether the object must be absent.
            data: Its content.
            if_match: The If-Match header, including quotes.
            like: Has the content type and metadata.
            md5: Not needed.

        Returns:
            Its etag, and None.
        """
        del md5
        attributes = dict(like.metadata or {}) if like else {}
        if like and like.content_type:
            attributes["Content-Type"] = like.content_type
        mode: PutMode = "create" if call.if_absent else "overwrite"
        if if_match is not None:
            mode = {"e_tag": if_match}
        with self._errors(call):
            result = obstore.put(
                self._access.obstore,
                full_key,
                data,
                mode=mode,
                use_multipart=False,
                attributes=attributes,
            )
        return (result["e_tag"] or "").strip('"'), None

    def delete(self, full_key: str, call: Call) -> None:
        """Remove an object."""
        with self._errors(call):
            obstore.delete(self._access.obstore, full_key)

    def _chunks(self, stream: Iterator[bytes], call: Call) -> Iterator[bytes]:
        with self._errors(call):
            yield from stream

    @contextmanager
    def _errors(self, call: Call) -> Iterator[None]:
        """Raise what obstore's errors mean, by their text, which contains the answer."""
        try:
            yield
        except FileNotFoundError as error:
            raise self._meaning(str(error), call) from error
        except BaseError as error:
            text = str(error)
            if "non-partial" in text or "NotPartial" in text:
                raise NoRangesError from error
            raise self._meaning(text, call) from error
        except ValueError as error:
            raise ObjectError(
                "object.bad_key", "the server refuses the key", where=call.where
            ) from error

    def _meaning(self, text: str, call: Call) -> LarderError:
        chain = self._access.settings.chain
        if chain and (refusal := chain.refusal(text, call)):
            return refusal
        answer = answer_of_text(text)
        return s3_error(answer, call) if answer else unanswered(text, call)


def _info(key: str, result: GetResult) -> ObjectInfo:
    meta, attributes = result.meta, result.attributes
    return ObjectInfo(
        key,
        meta["size"],
        (meta["e_tag"] or "").strip('"'),
        round(meta["last_modified"].timestamp() * 1e6),
        storage_class=storage_class(attributes.get("Storage-Class")),
        generation=meta["version"],
        content_type=attributes.get("Content-Type"),
        metadata={name: text for name, text in attributes.items() if name not in _HEADERS},
    )
