"""Names of versions: IDs, their beginnings, and tags, moved by compare-and-swap and by no clock.

A run reads the tag before it lists the source, and later moves it from the version read then. If
another run has moved the tag in between, this run's version may be older than the tag's version.
The run is then superseded, and starts again from the listing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import groupby
from typing import Any

from larder.errors import (
    ConfigError,
    DamageError,
    NotFoundError,
    PreconditionError,
    RetryableError,
    SupersededError,
)
from larder.manifest.sealed import MAKE_AGAIN, SPARSE, from_plain, seal, unseal
from larder.names import FILE, ID, Digest, HexId
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import (
    listed,
    not_kept,
    once_more,
    published_file_errors,
    read_document,
    read_optional,
)
from larder.units import format_names, suggest
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import KEPT, Conditions, existing_segment, read_version

TAG = "latest"
"""The tag that every run moves."""

HISTORY = 100
"""Maximum length of a tag's history."""

_TRIES = 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHORT_ID = re.compile(r"[0-9a-f]{4,31}")
_SHOWN_IDS = 3


@dataclass(frozen=True, slots=True)
class TagEntry:
    """An entry of a tag's history: a version, and the inputs digest of the run that moved the tag
    to it.
    """

    version: HexId
    inputs: Digest


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag.

    Attributes:
        inputs: The inputs digest that led to this version last. It differs from the digest in
            version.json if the same version has followed from other inputs since.
        history: Earlier entries, the newest last; at most `HISTORY`.
        pinned: Runs do not move the tag.
    """

    version: HexId
    inputs: Digest
    history: tuple[TagEntry, ...] = ()
    pinned: bool = field(default=False, metadata=SPARSE)

    def versions(self) -> Iterator[str]:
        """Yield the IDs of all versions that the tag has named, each once, the newest first."""
        past = (entry.version for entry in reversed(self.history))
        yield from dict.fromkeys((self.version, *past))

    def moved(self, to: TagEntry, pinned: bool) -> Tag:
        """Return the tag after a move; the history stays the same if the version does."""
        past = self.history
        if to.version != self.version:
            past = (*past, TagEntry(self.version, self.inputs))[-HISTORY:]
        return Tag(to.version, to.inputs, past, pinned)


def tag_names(store: Store) -> list[str]:
    keys = (info.key.removeprefix(layout.TAGS_PREFIX) for info in listed(store, layout.TAGS_PREFIX))
    names = (key.removesuffix(".json") for key in keys)
    return [name for name in names if FILE.allows(name)]


def read_tag(store: Store, tag: str) -> Tag | None:
    key = layout.tag_key(tag)

    def read() -> Tag | None:
        data = read_optional(store, key)
        return None if data is None else _parse(data, object_url(store.url, key))

    return once_more(read)


def move_tag(
    store: Store,
    tag: str,
    version: str,
    inputs: str,
    expected: str | None,
    conditions: Conditions = KEPT,
    pin: bool | None = None,
) -> bool:
    """Make a tag name a version, unless another run has moved it; return whether it was written.

    ``expected`` is the ID that the tag named before the run listed the source, or None.

    A tag that names the version already counts as moved: its inputs are replaced if they differ.
    The document is read right before the write, and replaced only if it is unchanged; otherwise the
    decision is made again. On a store that does not keep this condition, the second of two
    concurrent runs wins.

    ``pin`` is whether to pin the tag, as a user decides. With None, a pinned tag is not moved.

    Raises:
        ConfigError: ``version.pinned``: the tag is pinned to another version.
        SupersededError: The tag names another version than these two, or was deleted.
        DamageError: Its document is damaged.
        RetryableError: Other runs kept moving it at the same time.
    """
    for _ in range(_TRIES):
        try:
            with published_file_errors():
                to = TagEntry(version, inputs)
                return _try_to_move(store, tag, to, expected, conditions, pin)
        except PreconditionError:
            continue
    where = object_url(store.url, layout.tag_key(tag))
    raise RetryableError("store.unavailable", "the tag kept changing", where=where)


def _try_to_move(
    store: Store,
    tag: str,
    to: TagEntry,
    expected: str | None,
    conditions: Conditions,
    pin: bool | None,
) -> bool:
    key = layout.tag_key(tag)
    etag, old = once_more(partial(_with_etag, store, key)) or (None, None)
    if old is None:
        if expected is not None:
            raise _superseded(store, key, None)
        data = seal(Tag(to.version, to.inputs, pinned=bool(pin)))
        store.put(key, data, if_absent=conditions.if_absent)
    else:
        if old.version not in (to.version, expected):
            raise _superseded(store, key, old.version)
        if old.pinned and pin is None and old.version != to.version:
            raise pinned_error(store, tag, old)
        new = old.moved(to, old.pinned if pin is None else pin)
        if new == old:
            return False
        data = seal(new)
        store.put(key, data, if_match=etag if conditions.if_match else None)
    if read_tag(store, tag) in (None, old):
        raise not_kept(object_url(store.url, key), len(data), None)
    return True


def pinned_error(store: Store, tag: str, old: Tag) -> ConfigError:
    where, hint = object_url(store.url, layout.tag_key(tag)), "larder tag --unpin releases it"
    message = f"the tag is pinned to version {old.version}"
    return ConfigError("version.pinned", message, where=where, hint=hint)


def delete_tag(store: Store, tag: str) -> str:
    """Delete a tag that exists and is not pinned; return the ID of its version."""
    key = layout.tag_key(tag)
    etag, old = once_more(partial(_with_etag, store, key)) or (None, None)
    if old is None:
        hint = suggest(tag, tag_names(store), "tags")
        message = f"there is no tag {tag!r}"
        raise ConfigError("version.missing", message, where=store.url, hint=hint)
    if old.pinned:
        raise pinned_error(store, tag, old)
    try:
        with published_file_errors():
            store.delete(key, if_match=etag)
    except PreconditionError:
        now = read_tag(store, tag)
        raise _superseded(store, key, now.version if now else None) from None
    return old.version


def _superseded(store: Store, key: str, version: str | None) -> SupersededError:
    state = f"it names version {version} now" if version else "it was deleted"
    return SupersededError(
        "version.superseded",
        f"another run has moved the tag since this one listed the source: {state}",
        where=object_url(store.url, key),
        hint="run again",
    )


def _with_etag(store: Store, key: str) -> tuple[str, Tag] | None:
    try:
        info = store.head(key)
        data = read_document(store, key, if_match=info.etag)
    except NotFoundError:
        return None
    return info.etag, _parse(data, object_url(store.url, key))


def _parse(data: bytes, where: str) -> Tag:
    try:
        return tag_of(unseal(data, where))
    except ValueError as error:
        message = f"invalid field: {error}"
        raise DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN) from None


def tag_of(plain: Mapping[str, Any]) -> Tag:
    """Parse the tag in an unsealed document; ValueError if it is no tag.

    Unknown fields are ignored: a later Larder may have added them.
    """
    if "history" not in plain:
        raise ValueError("it is no tag")
    names = [each.name for each in fields(Tag)]
    return from_plain(Tag, {name: plain[name] for name in names if name in plain})


def published_version(store: Store, dataset: str, name: str) -> VersionDocument:
    """Read the version with an ID, the beginning of an ID, or a tag; raises like `find_version`.

    ``damage.manifest``, ``damage.size``: a document is damaged or missing.
    """
    id_ = find_version(store, dataset, name)
    version = read_version(store, id_)
    if version is None:
        if id_ == name:
            raise missing_version(store, dataset, name)
        message = f"it names version {id_}, which does not exist"
        where, hint = object_url(store.url, layout.tag_key(name)), "see larder verify"
        raise DamageError("damage.manifest", message, where=where, hint=hint)
    if version.dataset != dataset:
        message = f"it is that of version {version.id} of {version.dataset}"
        where = object_url(store.url, layout.version_key(id_))
        raise DamageError("damage.manifest", message, where=where, hint="see larder verify")
    for use in version.segments:
        existing_segment(store, use.id)
    return version


def find_version(store: Store, dataset: str, name: str) -> str:
    """Return the ID of the version that a tag, an ID, or at least four digits of an ID name.

    A tag comes before a shortened ID. A full ID or a tag may name a version without a document.
    ``version.missing``: nothing has that name; ``version.ambiguous``: several IDs begin with it.
    """
    if ID.allows(name):
        return name
    if _NAME.fullmatch(name) and (tag := read_tag(store, name)):
        return tag.version
    if id_ := one_of(store, published_ids(store, name), name):
        return id_
    raise missing_version(store, dataset, name)


def one_of(store: Store, versions: Iterable[str], name: str) -> str | None:
    """Return the ID that begins with ``name``, or None; ``version.ambiguous`` if several do."""
    if not _SHORT_ID.fullmatch(name):
        return None
    matches = [version for version in versions if version.startswith(name)]
    if len(matches) > 1:
        shown = format_names(matches, _SHOWN_IDS)
        message = f"{len(matches):,} versions begin with {name}: {shown}"
        hint = "give more digits"
        raise ConfigError("version.ambiguous", message, where=store.url, hint=hint)
    return next(iter(matches), None)


def missing_version(store: Store, dataset: str, name: str) -> ConfigError:
    hint = f"publish one with: larder prepare --dataset {dataset}"
    tags, versions = tag_names(store), list(published_ids(store))
    if tags or versions:
        names = [*tags, *(version[: max(8, len(name))] for version in versions)]
        hint = suggest(name, names, "tags and versions")
    message = f"there is no version or tag {name!r}"
    return ConfigError("version.missing", message, where=store.url, hint=hint)


def published_ids(store: Store, prefix: str = "") -> Iterator[str]:
    """Yield the IDs with a prefix whose version has its document, in order."""
    return (infos[0].key.split("/")[1] for infos in published(store, prefix))


def published(store: Store, prefix: str = "") -> Iterator[list[ObjectInfo]]:
    """Yield the objects of each version that has its document; the document comes first."""
    infos = listed(store, layout.version_prefix(prefix)[:-1])
    for version, group in groupby(infos, lambda info: info.key.split("/")[1]):
        document = layout.version_key(version)
        beside = sorted(group, key=lambda info: info.key != document)
        if ID.allows(version) and beside[0].key == document:
            yield beside
