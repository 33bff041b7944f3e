"""The headers of S3 that describe objects, as they are sent and as they are answered."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from functools import lru_cache

from larder.manifest.crc import format_crc32c
from larder.store.base import ObjectInfo
from larder.store.buckets import storage_class
from larder.store.s3.sign import encoded_path

_META = "x-amz-meta-"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110: what the name of a header may be."""


def described(like: ObjectInfo) -> dict[str, str]:
    """The headers of a new object with the content type and metadata of another one."""
    headers = {}
    if like.content_type:
        headers["content-type"] = _header_text(like.content_type)
    for name, text in (like.metadata or {}).items():
        if _NAME.fullmatch(name):  # other stores have names that no header can have
            headers[f"{_META}{name.lower()}"] = _header_text(text)
    return headers


def copy_source(source: str, if_match: str) -> dict[str, str]:
    """The headers that say what to copy: ``BUCKET/KEY``, and its etag or nothing."""
    headers = {"x-amz-copy-source": encoded_path(f"/{source}")}
    if if_match:  # a report may not have it
        headers["x-amz-copy-source-if-match"] = f'"{if_match}"'
    return headers


def crc32c_text(crc32c: int) -> str:
    """A CRC32C as S3 writes it."""
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def etag_of(headers: Mapping[str, str]) -> str:
    """The etag in an answer, without quotes; empty if it has none."""
    return headers.get("etag", "").strip('"')


def compared_checksum(headers: Mapping[str, str], crc32c: int) -> str | None:
    """The checksum that was sent, if the answer repeats it: then the server has compared it."""
    said = headers.get("x-amz-checksum-crc32c")
    return format_crc32c(crc32c) if said == crc32c_text(crc32c) else None


def object_info(key: str, headers: Mapping[str, str]) -> ObjectInfo:
    """The object that an answer describes."""
    total = headers.get("content-range", "").rpartition("/")[2]
    size_bytes = total if total.isdecimal() else headers.get("content-length", "0")
    modified = headers.get("last-modified")
    return ObjectInfo(
        key,
        int(size_bytes.rpartition(",")[2]),  # the same length may be given twice
        etag_of(headers),
        time_us(modified) if modified else 0,
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
def time_us(said: str) -> int:
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
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode()).decode()}?="


def _plain_text(text: str) -> str:
    if not text.startswith("=?"):
        return text
    try:
        return str(make_header(decode_header(text)))
    except (LookupError, ValueError):
        return text
