"""Chooses the units that may go: a pure function of the listing, the needed units and the time.

Mirrored objects may go if no remaining version was made from them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.catalog.holdings import Holdings, Named, Needed, whole_of
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.errors import ConfigError
from larder.jobs.manifests import read_ref
from larder.manifest.extents import parse_extent
from larder.manifest.schemas import OBJECTS, SOURCES
from larder.segments.stores import source_of
from larder.source.selection import KeyRule
from larder.store.base import UNKNOWN_US, ObjectInfo, Store
from larder.store.own_files import listed, listed_pages
from larder.store.permissions import permission
from larder.versions import layout
from larder.versions.leases import DAY_US
from larder.versions.publish import existing_segment, read_version

HOUR_US = DAY_US // 24
_DURATION = re.compile(r"([0-9]{1,6})([dh])")


@dataclass(frozen=True, slots=True)
class KeepPolicy:
    """Rules by which a clean keeps versions and units.

    Attributes:
        keep: Number of the last published versions that always stay.
        older_hours: Age in hours below which the other versions stay, too.
        grace_hours: Hours from the announcement to the deletion of a unit; also the hours without a
            write after which a unit that no version names may be announced.
    """

    keep: int
    older_hours: int = 0
    grace_hours: int = 24

    @property
    def grace_us(self) -> int:
        return self.grace_hours * HOUR_US

    def is_young(self, age_us: int) -> bool:
        """Whether a version is younger than ``older_hours``.

        With 0 no version is, not even a version that is dated after now: some stores list
        milliseconds, and tell the time in seconds.
        """
        return self.older_hours > 0 and age_us < self.older_hours * HOUR_US

    def has_passed(self, idle_us: int) -> bool:
        """Whether the grace time has passed; with 0 it always has.

        The clock may date an object a tick after the object that told the time.
        """
        return not self.grace_hours or idle_us >= self.grace_us


def read_policy(keep: int, older_than: str = "0h", grace: str = "24h") -> KeepPolicy:
    """Read the policy from the flags of a command; ``config.invalid_value``."""
    if keep < 1:
        message, hint = "expected 1 or more", "one version always stays"
        raise ConfigError("config.invalid_value", message, where="--keep", hint=hint)
    return KeepPolicy(keep, _hours(older_than, "--older-than"), _hours(grace, "--grace"))


def _hours(text: str, where: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        message, hint = "expected days or hours", "such as 30d or 12h"
        raise ConfigError("config.invalid_value", message, where=where, hint=hint)
    return int(match[1]) * (24 if match[2] == "d" else 1)


def kept_versions(
    holdings: Holdings, needed: Needed, policy: KeepPolicy, now_us: int
) -> dict[str, str]:
    """Return by ID, newest first, why published versions stay; empty for versions that may go."""

    def published_us(version: str) -> int:
        unit = holdings.units.get(f"versions/{version}")
        return (unit and unit.document_us) or now_us  # or it was published since the listing

    def place_in_time(version: str) -> tuple[int, bool]:
        """Sort by time; of one second, as some stores date, named versions are newer."""
        return published_us(version), version in needed.versions

    reasons = {}
    newest = sorted(needed.named, key=place_in_time, reverse=True)
    for place, version in enumerate(newest):
        is_young = policy.is_young(now_us - published_us(version))
        is_newest = place < policy.keep or published_us(version) == UNKNOWN_US
        kept = "newest" if is_newest else "young" if is_young else ""
        reasons[version] = needed.versions.get(version, kept)
    return reasons


def units_in_use(
    holdings: Holdings, needed: Needed, reasons: Mapping[str, str], policy: KeepPolicy, now_us: int
) -> InUse:
    """Return the units that stay, given the reasons why versions stay.

    The units of a version go with the version. A unit that no version names may be unfinished work
    of a run of another release, without a lease. Such a unit stays until the grace time has passed
    since its last write.
    """
    gone = {use[0] for version in reasons if not reasons[version] for use in needed.named[version]}
    in_use = InUse.of(needed, (version for version in reasons if reasons[version]))
    young = []
    for prefix, unit in holdings.units.items():
        _, _, id_ = prefix.partition("/")
        is_named = id_ in reasons or id_ in gone or in_use.has(prefix)
        if not is_named and not policy.has_passed(now_us - unit.newest_us):
            young.append(prefix)
    return replace(in_use, young=frozenset(young))


def due_units(holdings: Holdings, in_use: InUse) -> list[str]:
    prefixes = sorted({in_use.whole(prefix) for prefix in holdings.units})
    return [prefix for prefix in prefixes if not in_use.has(prefix)]


@dataclass(frozen=True, slots=True)
class InUse:
    """Versions that stay, their segments and caches, and everything that tags and leases need.

    ``young`` are prefixes of units that nothing names, written to within the grace time.
    """

    needed: Needed
    versions: frozenset[str]
    segments: frozenset[str]
    caches: frozenset[tuple[str, str | None]]
    young: frozenset[str] = frozenset()

    @staticmethod
    def of(needed: Needed, versions: Iterable[str]) -> InUse:
        """Return the units in use, given the IDs of the versions that stay."""
        versions = frozenset(versions)
        caches = Named().union(*(needed.named[version] for version in versions))
        segments = frozenset(segment for segment, _ in caches)
        return InUse(needed, versions | set(needed.versions), segments, caches)

    def whole(self, prefix: str) -> str:
        """Return the unit, or its segment if the segment is not in use either."""
        segment = whole_of(prefix)
        return prefix if self.has(segment) else segment

    def has(self, prefix: str) -> bool:
        """Whether a unit has to stay."""
        if prefix in self.young or whole_of(prefix) in self.young:
            return True
        kind, id_, *inner = prefix.split("/")
        if kind == "versions":
            return id_ in self.versions
        if kind == "work":  # a repair may look in it for the content of another file
            return self.needed.running
        cache = (id_, inner[-1]) if inner else None
        named = cache in self.caches if cache else id_ in self.segments
        return named or id_ in self.needed.segments


class UnreadCopy(NamedTuple):
    """A mirrored object; ``may_go``: the source also has it, or the dataset file excludes it."""

    info: ObjectInfo
    may_go: bool


def unread_copies(
    root: Store, versions: Iterable[str], dataset: Dataset | None, cluster: Cluster
) -> Iterator[UnreadCopy]:
    """Yield the mirrored objects whose keys are in the inventory of no given version.

    The source is listed if a dataset file says where it is. Otherwise its objects are not known,
    and nothing may go.
    """
    is_read = _membership(heapq.merge(*(_keys(root, version) for version in versions)))
    in_source = _membership(_source_keys(dataset, cluster) if dataset else iter(()))
    is_excluded = KeyRule(dataset.source.exclude if dataset else ())
    for page in listed_pages(root, layout.MIRROR_PREFIX):
        keys = [info.key.removeprefix(layout.MIRROR_PREFIX) for info in page]
        excluded = is_excluded(pa.array(keys, pa.string()))  # a long deny-list is looked at once
        for info, key, is_omitted in zip(page, keys, excluded.tolist(), strict=True):
            if not is_read(key):
                yield UnreadCopy(info, in_source(key) or is_omitted)


def _membership(keys: Iterator[str]) -> Callable[[str], bool]:
    """Return a test for membership in ordered keys; keys must be tested in order."""
    following = next(keys, None)

    def has(key: str) -> bool:
        nonlocal following
        while following is not None and following < key:
            following = next(keys, None)
        return following == key

    return has


def _keys(root: Store, version: str) -> Iterator[str]:
    """Yield the keys of the source that a version was made from, in order."""
    document = read_version(root, version)
    for file in document.files_of("objects") if document else ():
        for batch in read_ref(root, file, OBJECTS, columns=["key"]):
            yield from batch.column("key").to_pylist()


def _source_keys(dataset: Dataset, cluster: Cluster) -> Iterator[str]:
    source = source_of(dataset, cluster)
    with permission(source, "source", "list"):
        for page in source.list():
            yield from (info.key for info in page)


def unread_rows(root: Store, segments: Iterable[str], *, indexes: bool) -> Iterator[ObjectInfo]:
    """Yield containers of rows that no sample of the segments was packed from, and their indexes.

    ``indexes``: also yield indexes of archives and lines, which the next run that needs them makes
    again.
    """
    infos = {
        info.key.removeprefix(layout.DERIVED_PREFIX): info
        for info in listed(root, layout.DERIVED_PREFIX)
    }
    read = set(_containers(root, segments)) if infos else set()
    for name, info in infos.items():
        container = name.removesuffix(".parquet")
        if container not in read and (indexes or container in infos):
            yield info


def _containers(root: Store, segments: Iterable[str]) -> Iterator[str]:
    """Yield the names of Larder's own containers that samples of segments were packed from."""
    for segment in segments:
        file = existing_segment(root, segment).file("sources")
        for batch in read_ref(root, file, SOURCES, columns=["parts"]):
            etags = batch.column("parts").flatten().field("etag")
            ends = pc.replace_substring_regex(etags, r"^@[0-9]+\+[0-9]+", "@0+0")
            for etag in pc.unique(ends).to_pylist():
                if extent := parse_extent(etag):
                    yield extent.name
