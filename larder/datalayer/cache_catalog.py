"""Caches of a storage: list them, find their users, remove them.

A cache in a directory is in use while a process has a file of the cache open; the operating system
knows. A cache that is read from copies has a lease for each machine that has opened it, with the
time of the store's clock: it protects machines without all copies, and trials that resume later.

A removal begins with cache.json. So a process that opens the cache at that moment has all of it, or
builds the cache anew.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from larder.datalayer.cache_place import CachePlace, storage_of
from larder.datalayer.layer_cache import KEY, LayerCache, read_cache
from larder.disk import disk_errors, remove_abandoned_below, unused
from larder.errors import ConfigError, LarderError, NotFoundError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import seal
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed
from larder.units import format_time, suggest
from larder.versions import layout
from larder.versions.leases import DAY_US, Lease, read_leases, store_now_us

LEASE_DAYS: Final = 7

_UNTIL: Final = (
    "larder cache ls shows until when. --force ends leases: training that has not copied all files"
    " fails, and trials that go on later build the cache again"
)

_DOCUMENT: Final = re.compile(rf"(?P<id>[^/]+)/(?P<version>[^/]+)_(?P<split>train|val)/{KEY}")
_FILE: Final = re.compile(rf"{KEY}|[0-9a-f]{{64}}\.mdb|(?:leases|work)/[^/]+")


def hold(store: Store) -> None:
    """Write this machine's lease of a cache, at most once a day; ignore the store's errors."""
    node = platform.node() or "a machine"
    key = layout.lease_key(f"machine-{sha256_hex(node.encode())[:16]}")
    with suppress(LarderError):
        with suppress(NotFoundError):
            if abs(time.time_ns() // 1_000 - store.head(key).modified_us) < DAY_US:
                return
        store.put(key, seal(Lease(node, LEASE_DAYS)))


def list_caches(storage: str | None) -> dict[str, Any]:
    """Return the JSON document of ``larder cache ls``."""
    root, now_us = storage_of(storage), time.time_ns() // 1_000
    caches = []
    for names, info in _documents(root):
        place = replace(root, name=info.key.removesuffix(f"/{KEY}"))
        entry = {**names, "records": None, "bytes": None, "used_by": [], "problem": None}
        try:
            if cache := read_cache(place.store(), place.name):
                entry |= {"records": cache.records, "bytes": cache.bytes}
            with ExitStack() as stack:
                entry["used_by"] = _users(place, now_us, stack)
        except LarderError as error:
            entry["problem"] = str(error)
        caches.append({**entry, "built": format_time(info.modified_us)})
    return {"storage": root.store().url, "caches": caches}


def remove_caches(
    dataset_id: str, version: str, split: str | None, storage: str | None, force: bool = False
) -> dict[str, Any]:
    """Remove the caches of a dataset's version, or of one split; return the JSON document.

    ConfigError: ``cache.missing``; ``cache.in_use``, and then no cache is removed. ``force``
    disregards the leases of machines, but not processes that have a file of the cache or a copy
    open.
    """
    root = storage_of(storage)
    names = [info.key.removesuffix(f"/{KEY}") for _, info in _documents(root)]
    wanted = [f"{dataset_id}/{version}_{each}" for each in ([split] if split else ["train", "val"])]
    places = [replace(root, name=name) for name in names if name in wanted]
    if not places:
        message = f"there is no cache {dataset_id}/{version}{f'_{split}' if split else ''}"
        near = suggest(wanted[0], names, "caches")
        raise ConfigError("cache.missing", message, where=root.root, hint=near)
    with ExitStack() as stack:
        for place in places:
            if users := _users(place, store_now_us(place.store()), stack, force):
                message = f"it is in use by {users[0]}"
                hint = "wait until that process has ended" if force else _UNTIL
                raise ConfigError("cache.in_use", message, where=place.url, hint=hint)
        deleted = [info for place in places for info in _remove(place)]
    return {
        "storage": root.store().url,
        "removed": [place.name for place in places],
        "objects": len(deleted),
        "bytes": sum(info.size_bytes for info in deleted),
    }


def _documents(root: CachePlace) -> Iterator[tuple[dict[str, Any], ObjectInfo]]:
    for info in chain.from_iterable(root.store().list()):
        if match := _DOCUMENT.fullmatch(info.key):
            yield match.groupdict(), info


def _users(place: CachePlace, now_us: int, stack: ExitStack, force: bool = False) -> list[str]:
    """Return users of a cache. If there are none, no process can open it until the stack ends.

    ``force`` disregards leases, and looks for processes on this machine with an open copy.
    """
    users = [
        f"{each.lease.holder} until {format_time(each.until_us)}"
        for each in (() if force else read_leases(place.store()))
        if now_us < each.until_us
    ]
    folder = place.folder or (place.local if force else None)
    for path in folder.glob("*.mdb") if folder else ():
        with disk_errors(path, reading=True), suppress(FileNotFoundError):
            if not stack.enter_context(unused(path)):
                users.append("a process that has it open")
    return users


def _remove(place: CachePlace) -> list[ObjectInfo]:
    store, named = place.store(), set[str]()
    infos = [info for info in listed(store, "") if _FILE.fullmatch(info.key)]
    published_us = max((info.clock_us for info in infos if info.key == KEY), default=0)
    with suppress(LarderError):  # a damaged document names no file
        named = _names(read_cache(store, place.name))
    # A builder's files, which stay, are newer than the document. Clocks are inexact.
    infos = [
        info
        for info in infos
        if info.key in named or info.modified_us <= published_us or not info.key.endswith(".mdb")
    ]
    for info in sorted(infos, key=lambda info: info.key != KEY):
        store.delete(info.key)
    if place.directory:
        remove_abandoned_below(place.directory, [place.directory])
    if _names(read_cache(store, place.name)) & {info.key for info in infos}:
        store.delete(KEY)  # its builder reused files that are now deleted; the next builds them
    return infos


def _names(cache: LayerCache | None) -> set[str]:
    return {file.name for file in cache.files} if cache else set()
