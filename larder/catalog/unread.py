"""Mirrored objects that no version was made from."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from larder.jobs.manifests import read_ref
from larder.manifest.schemas import OBJECTS
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed
from larder.versions import layout
from larder.versions.publish import read_version


def unread_copies(root: Store, versions: Iterable[str]) -> Iterator[ObjectInfo]:
    """The mirrored objects whose keys are in the inventory of none of some versions."""
    wanted = heapq.merge(*(_keys(root, version) for version in versions))
    key = next(wanted, None)
    for info in listed(root, layout.MIRROR_PREFIX):
        mirrored = info.key.removeprefix(layout.MIRROR_PREFIX)
        while key is not None and key < mirrored:
            key = next(wanted, None)
        if key != mirrored:
            yield info


def _keys(root: Store, version: str) -> Iterator[str]:
    """The keys of the source that a version was made from, in order."""
    document = read_version(root, version)
    for file in document.files_of("objects") if document else ():
        for batch in read_ref(root, file, OBJECTS, columns=["key"]):
            yield from batch.column("key").to_pylist()
