"""Publishing: the last writes, in the order that is safe for readers.

A document is written after the files that it names, and makes them visible: segment.json,
cache.json, version.json, and then the tag (`larder.versions.tags`). Documents are created only if
absent. So the first of two concurrent runs wins, and both made the same thing. On a store that does
not keep this condition (`probe_conditions`), a run looks for a document right before writing it. Of
two runs that do so at once, the second wins.

Some S3 servers ignore ``If-None-Match`` and ``If-Match`` and overwrite; others refuse them. Only
trying tells. A run tries them once for each dataset before it writes, with ``work/conditions.json``
below the dataset's root, and records the answer there. Until the answer is known, the document
contains none. Two runs that ask at the same time get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from larder.bounds import DOCUMENT_BYTES
from larder.errors import DamageError, FatalError, PreconditionError, StoreError
from larder.manifest.sealed import MAKE_AGAIN, seal, unseal
from larder.store import object_url
from larder.store.base import Store
from larder.store.etags import is_weak
from larder.store.own_files import not_kept, once_more, published_file_errors, read_optional
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    Document,
    SegmentDocument,
    VersionDocument,
    parse_document,
)


def publish_document(
    store: Store,
    document: Document,
    *,
    if_absent: bool = True,
    check: Callable[[], object] = lambda: None,
) -> Document:
    """Write segment.json, cache.json or version.json unless it exists; return the existing one.

    ``if_absent``: whether the store keeps this condition. ``check`` is called before the write, to
    make sure that the store has every file that the document names.
    """
    kind = type(document)
    where = object_url(store.url, document.key)
    if (published := _read(kind, store, document.key)) is not None:
        return published
    check()
    data = seal(document)
    if len(data) > DOCUMENT_BYTES:
        message = f"it would have {len(data):,} bytes, and is read up to {DOCUMENT_BYTES:,}"
        hint = "make larger shards, which are fewer, or several datasets"
        raise FatalError("run.limit", message, where=where, hint=hint)
    with published_file_errors(), suppress(PreconditionError):
        store.put(document.key, data, if_absent=if_absent)
    if (published := _read(kind, store, document.key)) is None:
        raise not_kept(where, len(data), None)
    return published


def read_segment(store: Store, segment: str) -> SegmentDocument | None:
    """Read segment.json; None while the segment is not complete."""
    return _read(SegmentDocument, store, layout.segment_key(segment))


def existing_segment(
    store: Store, segment: str, each: Callable[[bytes], object] = len
) -> SegmentDocument:
    """Read segment.json, which a version names; ``each`` receives the bytes of a valid document."""
    key = layout.segment_key(segment)
    document = _read(SegmentDocument, store, key, each)
    if document is None:
        where = object_url(store.url, key)
        raise DamageError("damage.size", "the file is missing", where=where, hint=MAKE_AGAIN)
    return document


def read_cache(store: Store, segment: str, cache: str) -> CacheDocument | None:
    """Read cache.json; None while the cache is not complete."""
    return _read(CacheDocument, store, layout.cache_key(segment, cache))


def read_version(
    store: Store, version: str, each: Callable[[bytes], object] = len
) -> VersionDocument | None:
    """Read version.json; None if it does not exist. ``each`` receives the bytes of a valid
    document.
    """
    return _read(VersionDocument, store, layout.version_key(version), each)


def _read(
    kind: type[Document], store: Store, key: str, each: Callable[[bytes], object] = len
) -> Document | None:
    """Read a document and check that it belongs to its key; None if it does not exist."""
    where = object_url(store.url, key)

    def read() -> Document | None:
        if (data := read_optional(store, key)) is None:
            return None
        document = parse_document(kind, data, where)
        if document.key != key:
            message = f"it is the document of {document.id} of dataset {document.dataset}"
            raise DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN)
        each(data)
        return document

    return once_more(read)


_NO_ETAG = "0" * 32
"""An etag that no object has: no known content has an MD5 of all zeros."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of `larder.store.base.Store.put` that a store keeps.

    Attributes:
        if_absent: An object that exists is not overwritten.
        if_match: An object with another etag is not overwritten.
    """

    if_absent: bool
    if_match: bool

    @property
    def kept(self) -> bool:
        return self.if_absent and self.if_match


KEPT = Conditions(if_absent=True, if_match=True)
"""The conditions of a store that keeps both, such as a directory, Amazon S3 or Ceph."""


def read_conditions(root: Store) -> Conditions | None:
    """Read the recorded conditions of a store; None if no run has recorded any."""
    key = layout.CONDITIONS_KEY
    data = read_optional(root, key)
    if data is None:
        return None
    where = object_url(root.url, key)
    plain = unseal(data, where)
    if "asking" in plain:  # the run that asked was killed, or has not finished yet
        return None
    answers = (plain.get("if_absent"), plain.get("if_match"))
    if not all(isinstance(answer, bool) for answer in answers):
        raise DamageError("damage.manifest", "invalid field", where=where, hint=MAKE_AGAIN)
    return Conditions(*map(bool, answers))


def probe_conditions(root: Store) -> Conditions:
    """Read the recorded conditions of a store, or try them and record the answer."""
    recorded = read_conditions(root)
    if recorded is not None:
        return recorded
    key = layout.CONDITIONS_KEY
    with published_file_errors():
        first = root.put(key, seal({"asking": "nothing"}))
        conditions = Conditions(
            if_absent=_refused(lambda: root.put(key, seal({"asking": "absent"}), if_absent=True)),
            if_match=_refused(lambda: root.put(key, seal({"asking": "match"}), if_match=_NO_ETAG)),
        )
        if conditions.if_match and is_weak(first.etag):  # a weak etag may never meet a condition
            again = partial(root.put, key, seal({"asking": "again"}))
            never = _refused(lambda: again(if_match=root.head(key).etag))
            conditions = replace(conditions, if_match=not never)
        root.put(key, seal(conditions))
    return conditions


def _refused(write: Callable[[], object]) -> bool:
    """Return whether a write is refused because its condition does not hold.

    The write must differ from the stored bytes: a store that retries would take equal bytes for its
    own write.
    """
    try:
        write()
    except PreconditionError:
        return True
    except StoreError as error:
        if error.code not in ("store.refused", "store.unconditional"):
            raise
    return False
