"""Lists the units of a dataset, in one complete listing, and reads which units are needed.

A *unit* is kept or deleted whole: a version, a segment, a cache of a segment, the receipts of a
cache, or a file that a repair has replaced. Its name is its prefix, without the last ``/``.
Mirrored objects are no units: there may be millions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from larder.budgets import map_ahead
from larder.errors import DamageError
from larder.names import ID, SPLIT_REGEX
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, listed_without
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.leases import DAY_US, RUN, read_leases
from larder.versions.publish import read_version
from larder.versions.tags import published_ids, read_tag, tag_names

READERS = 16

SHOWN_KEYS = 1_000
"""Maximum number of units, and of foreign keys, that are named."""

_OTHERS = (
    *(layout.MIRROR_PREFIX, layout.TAGS_PREFIX, layout.LEASES_PREFIX, layout.TOMBSTONES_PREFIX),
    "work/",
)
"""Prefixes of objects that are no units, and are left alone."""


def readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS, thread_name_prefix="version")


def larders_files(dataset: str) -> re.Pattern[str]:
    """Return a pattern of the keys that `larder.versions.layout` gives files in units.

    Other keys in units are foreign.
    """
    id_, digest, split = ID.regex, "[0-9a-f]{16}", SPLIT_REGEX
    shard = rf"(?P<split>{split})/{re.escape(dataset)}-(?P=split)-[0-9]+[0-9a-z-]*\.[a-z0-9]+"
    index = shard.replace("split>", "of>").replace("split)", "of)")
    return re.compile(
        rf"versions/{id_}/(version\.json|classes\.json|manifests/[a-z]+-{digest}\.(parquet|npy)"
        rf"|lists/{split}-{digest}\.txt|readers/[^/]+/{split}\.json|card/card\.html"
        rf"|runs/[^/]+\.json|consumers/.+)"
        rf"|segments/{id_}/(segment\.json|shards/{shard}|index/[a-z]+-{digest}\.(npz|parquet)"
        rf"|index/[a-z]+/{index}|caches/{id_}/(cache\.json|{split}-{digest}\.mdb)|work/.+)"
        rf"|{layout.REPLACED_PREFIX}.+"
    )


def unit_of(key: str) -> str | None:
    """Return the prefix of a key's unit; None if the key is in no unit."""
    if key.startswith(layout.REPLACED_PREFIX):
        return key
    names = key.split("/")
    if len(names) < 3 or names[0] not in ("versions", "segments") or not ID.allows(names[1]):
        return None
    of_cache = len(names) > 4 and names[0] == "segments" and names[2] == "caches"
    of_receipts = len(names) > 5 and names[0] == "segments" and names[2:4] == ["work", "caches"]
    return "/".join(names[: 4 if of_cache else 5 if of_receipts else 2])


def whole_of(prefix: str) -> str:
    """Return the segment that a unit is inside of; else the unit itself."""
    return "/".join(prefix.split("/")[:2]) if prefix.startswith("segments/") else prefix


@dataclass(slots=True)
class Unit:
    """The objects of a unit, with objects of inner units; ``newest_us`` is of the last write.

    ``document_us`` is when the unit's document was written; None without a document. ``runs`` are
    the records beside a version.
    """

    objects: int = 0
    bytes: int = 0
    newest_us: int = 0
    document_us: int | None = None
    runs: list[ObjectInfo] = field(default_factory=list)


@dataclass(slots=True)
class Holdings:
    """The units of a dataset by their prefixes, and the first files that are not Larder's.

    ``sizes`` counts every byte once, also of files that are not Larder's: by the prefix of the
    innermost unit, or outside of units by the first folder.
    """

    units: dict[str, Unit] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)
    foreign: list[str] = field(default_factory=list)
    foreign_count: int = 0

    def add(self, info: ObjectInfo, is_larders: bool) -> None:
        prefix = unit_of(info.key)
        self.sizes[prefix or info.key.partition("/")[0]] += info.size_bytes
        if not is_larders and (prefix or not info.key.startswith(_OTHERS)):
            self.foreign_count += 1
            if len(self.foreign) < SHOWN_KEYS:
                self.foreign.append(info.key)
        elif prefix:
            for name in {prefix, whole_of(prefix)}:
                unit = self.units.setdefault(name, Unit())
                unit.objects += 1
                unit.bytes += info.size_bytes
                unit.newest_us = max(unit.newest_us, info.modified_us)
                if info.key == document_of(name):
                    unit.document_us = info.modified_us
                elif info.key.startswith(f"{name}/runs/"):
                    unit.runs.append(info)


def document_of(prefix: str) -> str:
    """Return the key that makes a unit whole, written last, deleted first; empty for receipts."""
    kind, id_, *inner = prefix.split("/")
    if kind == "versions":
        return layout.version_key(id_)
    if kind == "segments" and inner:
        return layout.cache_key(id_, inner[1]) if inner[0] == "caches" else ""
    return layout.segment_key(id_) if kind == "segments" else prefix


def take_holdings(root: Store, dataset: str, *, mirror: bool = False) -> Holdings:
    """List a dataset, its mirror only if asked; a listing that fails is an error, never partial."""
    holdings, is_larders = Holdings(), larders_files(dataset).fullmatch
    infos = listed(root, "") if mirror else listed_without(root, "", layout.MIRROR_PREFIX)
    for info in infos:
        holdings.add(info, is_larders(info.key) is not None)
    return holdings


Named = frozenset[tuple[str, str | None]]
"""The segments of a version, each with its cache, if any."""


def named_by(version: VersionDocument) -> Named:
    return frozenset((use.id, use.cache) for use in version.segments)


def prefixes_of(named: Named) -> Iterator[str]:
    """Yield the units that a version keeps, given its segments: a cache keeps its receipts."""
    for segment, cache in named:
        yield layout.segment_prefix(segment)[:-1]
        if cache:
            yield layout.cache_prefix(segment, cache)[:-1]
            yield layout.cache_work_prefix(segment, cache)[:-1]


@dataclass(frozen=True, slots=True)
class Needed:
    """Versions and segments that tags, leases and versions need.

    Attributes:
        versions: By ID, why a version is needed.
        segments: IDs of segments that runs use.
        running: Whether a run has a lease.
        named: By ID, the segments and caches that each published version names.
    """

    versions: Mapping[str, str]
    segments: frozenset[str]
    running: bool
    named: Mapping[str, Named]


def read_needed(root: Store, now_us: int, named: Mapping[str, Named] | None = None) -> Needed:
    """Read leases, tags and versions, in this order, so that a new version or its lease is seen.

    A run gives its lease back once its tag is written. Versions are not read if ``named`` is given.

    DamageError: a document is damaged, of another release, or lost although a tag or lease names
    it. Then the needed units are not known.
    """
    versions: dict[str, str] = {}
    segments: set[str] = set()
    unpublished: set[str] = set()
    running = False
    for each in sorted(read_leases(root), key=lambda each: each.until_us):
        if now_us < each.until_us:
            left = format_count(math.ceil((each.until_us - now_us) / DAY_US), "day")
            reason = f"lease {each.name}; {left} left"
            versions |= dict.fromkeys(each.lease.versions, reason)
            segments |= set(each.lease.segments)
            running |= each.name.startswith(RUN)
            unpublished |= set(each.lease.versions if each.lease.segments else ())
    for name in tag_names(root):
        if tag := read_tag(root, name):
            versions[tag.version] = f"tag {name}"
    named = _read_named(root) if named is None else named
    for version, reason in versions.items():
        if version not in named and (version not in unpublished or reason.startswith("tag")):
            message = f"{reason.partition(';')[0]} names version {version}, which has no document"
            hint = "see larder verify; or change the tag, or drop the lease"
            raise DamageError("damage.manifest", message, where=root.url, hint=hint)
    return Needed(versions, frozenset(segments), running, named)


def _read_named(root: Store) -> dict[str, Named]:
    def read(version: str) -> VersionDocument | None:
        return read_version(root, version)

    with readers() as pool:
        documents = map_ahead(pool, read, published_ids(root), window=2 * READERS)
        return {each.id: named_by(each) for each in documents if each}
