"""Reads one file of a dataset, whatever is in its place, and compares it with what is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from larder.errors import LarderError, NotFoundError, ObjectError
from larder.store.base import Readable, Store

MISSING = "the file is missing"


def compared(
    store: Readable,
    key: str,
    size_bytes: int,
    sha256: str,
    each: Callable[[Any], object] = len,
) -> tuple[str, str, str]:
    """Read a file once; ``each`` gets every buffer of it.

    Returns the code and the message of what is wrong, empty if nothing is, and the digest of what
    is in its place, empty if that cannot be read.
    """
    try:
        actual_bytes, digest = read_digest(store, key, each)
    except NotFoundError:
        return "damage.size", MISSING, ""
    except ObjectError as error:
        if not is_broken(store, error):
            raise
        return "damage.size", f"the file cannot be read completely: {error.message}", ""
    if actual_bytes != size_bytes:
        message = f"the file has {actual_bytes:,} bytes instead of {size_bytes:,}"
        return "damage.size", message, digest
    if digest != sha256:
        return "damage.digest", "the bytes do not match the digest", digest
    return "", "", digest


def has_content(store: Readable, key: str, size_bytes: int, sha256: str) -> bool:
    """Whether a file can be read, and has these bytes."""
    return not compared(store, key, size_bytes, sha256)[0]


def read_digest(store: Readable, key: str, each: Callable[[Any], object] = len) -> tuple[int, str]:
    """The length and the sha256 of an object; ``each`` gets every buffer of it."""
    hasher, size_bytes = hashlib.sha256(), 0
    with store.open(key) as reader:
        for buffer in reader:
            hasher.update(buffer)
            size_bytes += len(buffer)
            each(buffer)
    return size_bytes, hasher.hexdigest()


def readable(root: Store, path: str) -> bytes | None:
    """The bytes of a document; None if it is missing, or cannot be read from its disk."""
    try:
        return bytes(root.get(path))
    except ObjectError as error:
        if not isinstance(error, NotFoundError) and not is_broken(root, error):
            raise
        return None


def is_broken(store: Readable, error: LarderError) -> bool:
    """Whether one file cannot be read, as on a bad sector, or is shorter than it is said to be.

    In a bucket, a file that cannot be read means that access to it is refused.
    """
    if error.code == "object.unreadable":
        return bool(store.features.local_path)
    return error.code == "object.truncated"
