"""Permissions that the calls of a store need: errors that name missing ones, and early probes.

A forbidden call is answered with 403, which names neither the missing permission nor the place to
grant it. `permission` adds both.

A run first tries its calls on both stores, so that it does not fail later (`probe_source`,
`probe_storage`). Directories are not probed: permissions may differ between folders, and later
errors there are as exact. ``s3:AbortMultipartUpload`` is not probed either: without it, a run
stopped during a large write leaves parts behind.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from larder.errors import ObjectError, StoreError
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable, Store

ACTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "s3": {
        "list": ("s3:ListBucket",),
        "get": ("s3:GetObject", "s3:ListBucket"),  # without the latter, 403 for a missing object
        "put": ("s3:PutObject",),
        "delete": ("s3:DeleteObject",),
    },
    "gs": {
        "list": ("storage.objects.list",),
        "get": ("storage.objects.get", "storage.objects.list"),
        "put": ("storage.objects.create", "storage.objects.delete"),  # the latter to replace
        "delete": ("storage.objects.delete",),
    },
}
"""Permissions by provider and method of a store, for the methods that are probed."""

POLICIES = "deployments/policies"
"""The folder of the policies with these permissions, below the root of the repository."""

_ROLES = {"source": "source-reader", "storage": "storage-writer"}

_ACTION = re.compile(r"\b(?:s3|kms):[A-Z]\w+|\b(?:storage|cloudkms)\.\w+\.\w+")
"""A permission in the message of a store: AWS and Google Cloud often name the missing one."""

_CLOUDS = {"s3": "aws", "gs": "gcp"}


def is_remote(store: Readable) -> bool:
    """Whether a store is a bucket, and so has permissions."""
    return store.features.place is not None


@contextmanager
def permission(store: Readable, side: str, *methods: str) -> Iterator[None]:
    """Name the missing permission if the store refuses one of these calls; ``side`` is the store's
    role, ``source`` or ``storage``.
    """
    try:
        yield
    except (ObjectError, StoreError) as error:
        place = store.features.place
        if place is None or not _is_refusal(error):
            raise
        of_method = ACTIONS[place.provider]
        needed = dict.fromkeys(action for method in methods for action in of_method[method])
        named = dict.fromkeys(_ACTION.findall(error.message))
        policy = f"{_CLOUDS[place.provider]}-{_ROLES[side]}.json"
        if any("kms" in action for action in named):
            policy = "README.md"
        hint = f"grant {' and '.join(named or needed)}, as in {POLICIES}/{policy}"
        message = f"the {side} refuses access: {error.message}"
        raise StoreError("store.denied", message, where=error.where, hint=hint) from error


def _is_refusal(error: ObjectError | StoreError) -> bool:
    """Whether a permission is missing: a 403 without another cause, such as an archived object."""
    general = not error.hint or error.hint.startswith("request permission")
    return general and (error.code == "store.denied" or "403" in error.message)


_ABANDONED_US = 86_400 * 10**6
PROBE = b"written by Larder to find out whether it may; can be deleted\n"


def sample_of(objects: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Choose up to three objects with content: the first, the middle and the last."""
    candidates = [info for info in objects if info.size_bytes and not info.storage_class]
    candidates = candidates or [info for info in objects if info.size_bytes]
    places = dict.fromkeys((0, len(candidates) // 2, len(candidates) - 1)) if candidates else ()
    return [candidates[place] for place in places]


def probe_source(source: Readable, samples: Iterable[ObjectInfo] | None = None) -> None:
    """Check that a source may be listed and read; does nothing for a directory.

    Reading counts as refused only if access to every sample is denied: one unreadable object is a
    failure of that object. Without ``samples``, a page is listed to find some.
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
        except ObjectError:  # changed, vanished or archived: the run reports that for each object
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
    """Check that objects may be written, read, listed and deleted; does nothing for a directory.

    A bucket that does not keep the probe is ``store.refused``. Probes that killed runs left over a
    day ago are deleted.
    """
    if not is_remote(root):
        return
    key = f"{prefix}{secrets.token_hex(8)}"
    with permission(root, "storage", "put"):
        root.put(key, PROBE)
    try:
        with permission(root, "storage", "get"):
            content = root.get(key)
        with permission(root, "storage", "list"):
            probes = {info.key: info for page in root.list(prefix) for info in page}
    finally:
        with permission(root, "storage", "delete"):
            root.delete(key)
    if content != PROBE or key not in probes:
        message = "an object that was just written cannot be read or listed"
        hint = "check the endpoint, and that nothing else deletes objects there"
        where = object_url(root.url, key)
        raise StoreError("store.refused", message, where=where, hint=hint)
    now_us = probes[key].clock_us
    for other in probes.values():
        if now_us - other.modified_us > _ABANDONED_US:
            root.delete(other.key)
