"""Which permissions the calls of a store need, and errors that name the missing one.

What each method of `larder.store.base.Store` asks of the provider. A call that a policy does not
allow is answered with 403, which says neither which permission is missing nor where it would be
granted; where the caller knows, `permission` says it.

=====================  ================================  ==================================
method                 AWS S3                            Google Cloud Storage
=====================  ================================  ==================================
list                   s3:ListBucket (of the bucket)     storage.objects.list
head, open, get        s3:GetObject; s3:ListBucket, so   storage.objects.get; storage.objects
                       that a missing object is not      .list likewise
                       answered like a refused one
put, upload            s3:PutObject                      storage.objects.create, and
                                                         storage.objects.delete to replace
writer, begin_upload   s3:PutObject, s3:GetObject,       the same
                       s3:AbortMultipartUpload; to
                       continue, s3:ListMultipart
                       UploadParts
abort_uploads          s3:ListBucketMultipartUploads,    none
                       s3:AbortMultipartUpload
copy_from              s3:PutObject, and s3:GetObject    the same, and storage.objects.get of
                       of the source                     the source
delete                 s3:DeleteObject                   storage.objects.delete
region                 none                              storage.buckets.get, without which
                                                         the location stays unknown
=====================  ================================  ==================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from larder.errors import ObjectError, StoreError
from larder.store.base import Readable

ACTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "s3": {
        "list": ("s3:ListBucket",),
        "head": ("s3:GetObject", "s3:ListBucket"),
        "open": ("s3:GetObject", "s3:ListBucket"),
        "get": ("s3:GetObject", "s3:ListBucket"),
        "put": ("s3:PutObject",),
        "upload": ("s3:PutObject", "s3:AbortMultipartUpload"),
        "writer": ("s3:PutObject", "s3:AbortMultipartUpload"),
        "begin_upload": (
            "s3:PutObject",
            "s3:AbortMultipartUpload",
            "s3:ListMultipartUploadParts",
        ),
        "abort_uploads": ("s3:ListBucketMultipartUploads", "s3:AbortMultipartUpload"),
        "commit": ("s3:PutObject",),
        "abort": ("s3:AbortMultipartUpload",),
        "copy_from": ("s3:PutObject", "s3:AbortMultipartUpload"),
        "delete": ("s3:DeleteObject",),
        "region": (),
    },
    "gs": {
        "list": ("storage.objects.list",),
        "head": ("storage.objects.get", "storage.objects.list"),
        "open": ("storage.objects.get", "storage.objects.list"),
        "get": ("storage.objects.get", "storage.objects.list"),
        "put": ("storage.objects.create", "storage.objects.delete"),
        "upload": ("storage.objects.create", "storage.objects.delete"),
        "writer": ("storage.objects.create", "storage.objects.delete"),
        "begin_upload": ("storage.objects.create", "storage.objects.delete"),
        "abort_uploads": (),
        "commit": ("storage.objects.create", "storage.objects.delete"),
        "abort": (),
        "copy_from": ("storage.objects.create", "storage.objects.delete"),
        "delete": ("storage.objects.delete",),
        "region": (),
    },
}
"""By provider and method of a store (or of its writers): the permissions that it needs."""

POLICIES = "deployments/policies"
"""Where the policies with these permissions are, below the root of the repository."""

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "source-reader": ("list", "head", "open", "get"),
    "storage-writer": tuple(ACTIONS["s3"]),
    "trainer": ("list", "head", "open", "get"),
}
"""By role, the methods that it calls."""

_ROLES = {"source": "source-reader", "storage": "storage-writer"}

_ACTION = re.compile(r"\b(?:s3|kms):[A-Z]\w+|\b(?:storage|cloudkms)\.\w+\.\w+")
"""A permission in the message of a store: AWS and Google Cloud often name the missing one."""

_CLOUDS = {"s3": "aws", "gs": "gcp"}


def is_remote(store: Readable) -> bool:
    """Whether a store has permissions at all: it is a bucket."""
    place = store.features.place
    return place is not None and place.provider in ACTIONS


def actions(store: Readable, *methods: str) -> tuple[str, ...]:
    """The permissions that methods of a store need, each once; none if it is not a bucket."""
    place = store.features.place
    of_method = ACTIONS.get(place.provider, {}) if place else {}
    found = (action for method in methods for action in of_method.get(method, ()))
    return tuple(dict.fromkeys(found))


@contextmanager
def permission(store: Readable, side: str, *methods: str) -> Iterator[None]:
    """Say which permission is missing, if the store refuses one of these calls; ``side`` is
    ``source`` or ``storage``, what the store is to the run.
    """
    try:
        yield
    except (ObjectError, StoreError) as error:
        needed = actions(store, *methods)
        if not needed or not _is_refusal(error):
            raise
        place = store.features.place
        assert place is not None, "it has permissions"
        told = tuple(dict.fromkeys(_ACTION.findall(error.message)))
        policy = f"{_CLOUDS[place.provider]}-{_ROLES[side]}.json"
        if any("kms" in action for action in told):
            policy = "README.md"
        hint = f"grant {' and '.join(told or needed)}, as in {POLICIES}/{policy}"
        message = f"the {side} refuses access: {error.message}"
        raise StoreError("store.denied", message, where=error.where, hint=hint) from error


def _is_refusal(error: ObjectError | StoreError) -> bool:
    """Whether a permission is missing: a 403 without a cause of its own, such as an archive."""
    general = not error.hint or error.hint.startswith("request permission")
    return general and (error.code == "store.denied" or "403" in error.message)
