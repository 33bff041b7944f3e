"""Checks of keys, and the addresses of objects."""

from __future__ import annotations

from larder.bounds import MAX_KEY_BYTES, MAX_NAME_BYTES
from larder.disk import TEMPORARY_PREFIX
from larder.errors import ObjectError


def object_url(store_url: str, key: str) -> str:
    """Return an object's address for messages: the store's URL, a slash and the key."""
    return store_url + key if store_url.endswith("/") else f"{store_url}/{key}"


def folder_prefix(path: str) -> str:
    """Return a path with one slash at its end, as in ``a/b/``; an empty path stays empty."""
    path = path.rstrip("/")
    return f"{path}/" if path else ""


def check_key(key: str, store_url: str, *, prefix: str = "") -> None:
    """Raise ``object.bad_key`` if a key of a bucket, after the store's ``prefix``, is not valid."""
    size_bytes = len(prefix.encode()) + len(_encoded(key, store_url))
    if not key:
        raise _bad(key, store_url, "the key is empty")
    if size_bytes > MAX_KEY_BYTES:
        counted = f" with the prefix {prefix}" if prefix else ""
        reason = f"the key has {size_bytes:,} bytes{counted}, more than {MAX_KEY_BYTES:,}"
        raise _bad(key, store_url, reason)


def check_path_key(key: str, store_url: str) -> bytes:
    """Return a key's UTF-8 bytes if it is a valid path in a directory; else ``object.bad_key``."""
    if _is_plain(key):
        return key.encode()
    raw = _encoded(key, store_url)
    if "\0" in key:
        raise _bad(key, store_url, "a file name cannot have a NUL byte")
    for segment in raw.split(b"/"):
        reason = _why_no_name(segment)
        if reason:
            raise _bad(key, store_url, reason)
    return raw


def _encoded(key: str, store_url: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise _bad(key, store_url, "the key is not valid Unicode") from None


def _is_plain(key: str) -> bool:
    """Whether a key is certainly valid: a fast test, as millions of keys are checked."""
    return (
        key.isascii()
        and 0 < len(key) <= MAX_NAME_BYTES
        and key[0] not in "./"
        and key[-1] != "/"
        and "//" not in key
        and "/." not in key
        and "\0" not in key
    )


def _why_no_name(segment: bytes) -> str:
    if not segment:
        return "a path cannot have an empty segment, or begin or end with /"
    if segment in (b".", b".."):
        return f"the segment {segment.decode()!r} means another directory in a path"
    if len(segment) > MAX_NAME_BYTES:
        return f"a segment has {len(segment)} bytes, more than the {MAX_NAME_BYTES} of a file name"
    if segment.startswith(TEMPORARY_PREFIX.encode()):
        return f"names that begin with {TEMPORARY_PREFIX} are reserved"
    return ""


def _bad(key: str, store_url: str, reason: str) -> ObjectError:
    shown = key.encode("utf-8", "backslashreplace").decode()
    return ObjectError("object.bad_key", reason, where=object_url(store_url, shown))
