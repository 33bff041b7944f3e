"""Finds mirrored objects that no remaining version was made from."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.jobs.manifests import read_ref
from larder.manifest.extents import parse_extent
from larder.manifest.schemas import OBJECTS, SOURCES
from larder.segments.stores import source_of
from larder.source.selection import KeyRule
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, listed_pages
from larder.store.permissions import permission
from larder.versions import layout
from larder.versions.publish import existing_segment, read_version


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
