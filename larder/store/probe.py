"""Tries in the first seconds what a run will do to both stores, so that it does not fail later.

Buckets that do not exist or are in another region are reported by the first request of all. A
missing permission is named: the source is listed, and one object read; in the storage, a small
object is written, read, listed and deleted. Directories are not tried: their permissions may differ
from one folder to the next, and are reported as exactly as soon as they matter.

``s3:AbortMultipartUpload`` is not tried. Without it, a run that is stopped while it writes a large
object leaves parts behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from larder.errors import ObjectError, StoreError
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable, Store
from larder.store.permissions import is_remote, permission

PROBE = b"written by Larder to find out whether it may; can be deleted\n"

_SAMPLES = 3


def sample_of(objects: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Up to three objects with content to read: the first, the middle and the last one."""
    found = [info for info in objects if info.size_bytes and not info.storage_class]
    found = found or [info for info in objects if info.size_bytes]
    places = dict.fromkeys((0, len(found) // 2, len(found) - 1)) if found else ()
    return [found[place] for place in places]


def probe_source(source: Readable, samples: Iterable[ObjectInfo] | None = None) -> None:
    """Find out whether a source may be listed and read; does nothing unless it is a bucket.

    One object that cannot be read is a failure of that object; it takes several to refuse the run.
    Without ``samples``, a page is listed to find some.
    """
    if not is_remote(source):
        return
    if samples is None:
        with permission(source, "source", "list"):
            samples = sample_of(next(source.list(), []))
    refused: StoreError | None = None
    for info in samples:
        try:
            with permission(source, "source", "get"):
                source.get(info.key, length=1)
        except ObjectError:  # changed, vanished or archived: that is found out about each object
            return
        except StoreError as error:
            if error.code != "store.denied":
                raise
            refused = error
        else:
            return
    if refused:
        raise refused


def probe_storage(root: Store, prefix: str) -> None:
    """Find out whether objects may be written, read, listed and deleted; only in a bucket.

    The key to write is ``prefix`` and random digits; ``store.refused`` if the bucket answers, but
    does not keep what was written.
    """
    if not is_remote(root):
        return
    key = f"{prefix}{secrets.token_hex(8)}"
    with permission(root, "storage", "put"):
        root.put(key, PROBE)
    try:
        with permission(root, "storage", "get"):
            found = root.get(key)
        with permission(root, "storage", "list"):
            keys = [info.key for page in root.list(key) for info in page]
    finally:
        with permission(root, "storage", "delete"):
            root.delete(key)
    if found != PROBE or keys != [key]:
        message = "an object that was just written cannot be read or listed"
        hint = "check the endpoint, and that nothing else deletes objects there"
        where = object_url(root.url, key)
        raise StoreError("store.refused", message, where=where, hint=hint)
