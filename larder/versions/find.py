"""Finds a version by the name that a user gives: an ID, the beginning of an ID, or a tag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from larder.errors import ConfigError, DamageError
from larder.names import ID
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed
from larder.units import format_names, suggest
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import existing_segment, read_version
from larder.versions.tags import read_tag, tag_names

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHORT_ID = re.compile(r"[0-9a-f]{4,31}")
_SHOWN_IDS = 3


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
