"""A cache that is there, or is built: by one process of a machine, and for all machines once.

Whoever comes first builds. Processes of a machine wait for the one that does; the system releases
its lock when it ends, however it ends. Machines do not wait for each other: of two that build, the
one that creates cache.json first has built the cache, and the other one reads it. Until then
nothing is there but a file that nobody names.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from larder.cache.build import build_file
from larder.cache.file import CacheFileReader, open_file
from larder.cache.record import Buffer, ChecksumDigest, Codec
from larder.datalayer.catalog import hold
from larder.datalayer.copies import evict, room_below, stamp_of
from larder.datalayer.document import (
    BUILD_AGAIN,
    FORMAT,
    KEY,
    YOGADL_KEY,
    LayerCache,
    read_cache,
)
from larder.datalayer.elements import Encoder, Leaf, schema_of
from larder.datalayer.function import changes
from larder.datalayer.place import Place
from larder.disk import (
    check_room,
    disk_errors,
    open_shared,
    sha256_file,
    sync_folder,
    workshop,
    write_file,
)
from larder.errors import (
    ConfigError,
    DamageError,
    FatalError,
    LarderError,
    NotFoundError,
    PreconditionError,
    StoreError,
)
from larder.manifest.sealed import seal
from larder.store import object_url
from larder.store.base import Store, WriteOptions
from larder.store.download import download, locked
from larder.store.own_files import published_file_errors
from larder.units import format_count, format_names
from larder.versions.publish import KEPT, Conditions, not_kept, probe_conditions

OnChange = Literal["warn", "error", "rebuild"]

DISK_RESERVE: Final = 0.05
"""The fraction of the free disk space that a build leaves."""

_LOG: Final = logging.getLogger("larder")
_LOCK: Final = ".larder.lock"
_SETTLED_SECONDS: Final = 0.1


class Source(Protocol):
    """The dataset that the function returned."""

    kind: str
    leaves: tuple[Leaf, ...]
    need_bytes: int
    """What its elements take at least; 0 if that is not known."""
    is_stacked: bool
    """Whether it gives several elements at once, of one shape."""

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True, slots=True)
class Caching:
    """A function, and how it is cached.

    Attributes:
        place: Where.
        store: That of the place.
        function: Digests of what is decorated.
        make: Calls that.
        on_change: What becomes of a cache that was built by another function.
        max_bytes: Of a build; None for the free disk.
        max_records: None for as many as come.
    """

    place: Place
    store: Store
    function: Mapping[str, str]
    make: Callable[[], Source]
    on_change: OnChange
    max_bytes: int | None
    max_records: int | None

    def open(self) -> tuple[LayerCache, CacheFileReader]:
        """The cache, built if there is none."""
        while True:
            cache, is_new = read_cache(self.store, self.place.name), False
            if cache is None or self._replaces(cache):
                cache, is_new = self._built()
            if changed := changes(cache.function, self.function):
                self._report(cache, changed)
            try:
                return cache, self._opened(cache, is_new=is_new)
            except LarderError:
                if read_cache(self.store, self.place.name) == cache:
                    raise  # else somebody has removed or replaced it meanwhile

    @property
    def _where(self) -> str:
        return object_url(self.store.url, KEY)

    def _replaces(self, cache: LayerCache) -> bool:
        return self.on_change == "rebuild" and bool(changes(cache.function, self.function))

    def _report(self, cache: LayerCache, changed: list[str]) -> None:
        """Say that a function changed; refuse it if its elements are others now.

        Only TensorFlow knows them without making one.
        """
        message = f"the function has changed since the cache was built: {format_names(changed, 5)}"
        hint = "use another version, or on_change='rebuild'"
        if self.on_change == "error":
            raise ConfigError("cache.changed", message, where=self._where, hint=hint)
        _LOG.warning("%s: %s; %s", self._where, message, hint)
        if cache.kind == "tensorflow":
            self._check_same(cache, self.make())

    def _check_same(self, cache: LayerCache, source: Source) -> None:
        mine, theirs = (
            [(leaf.path, leaf.dtype, leaf.shape) for leaf in each.leaves]
            for each in (source, cache)
        )
        if source.kind != cache.kind or mine != theirs:
            made, cached = _shown(source.leaves), _shown(cache.leaves)
            message = f"the elements are {made}, but the cache has {cached}"
            raise FatalError("cache.schema", message, where=self._where, hint=BUILD_AGAIN)

    def _built(self) -> tuple[LayerCache, bool]:
        """The cache that is there afterwards, and whether this process has built it."""
        home = self.place.folder or self.place.local
        with _alone(home):
            before = read_cache(self.store, self.place.name)
            if before is not None and not self._replaces(before):
                return before, False  # by the process that had the lock
            if before is None:
                _refuse_yogadl(self.store)
            # Before the work, as it also shows whether the storage may be written.
            is_bucket = not self.store.features.local_path
            conditions = probe_conditions(self.store) if is_bucket else KEPT
            source = self.make()
            with workshop(home) as bench:
                path = bench / "records.mdb"
                cache = self._build(source, path)
                if self.place.folder is None:
                    self.store.upload(cache.file, path)
                    with suppress(StoreError):  # what is open stays
                        evict(self.place.copies, self.place.limit_bytes, cache.bytes)
                os.replace(path, home / cache.file)
                sync_folder(os.fsencode(home))
            published = self._publish(cache, before, conditions)
            if published.file != cache.file:
                with suppress(LarderError):
                    self.store.delete(cache.file)
                (home / cache.file).unlink(missing_ok=True)
            self._check_same(published, source)
            return published, published.file == cache.file

    def _build(self, source: Source, path: Path) -> LayerCache:
        free_bytes = shutil.disk_usage(path.parent).free
        reserve_bytes = max(1, int(free_bytes * DISK_RESERVE))
        check_room(path.parent, source.need_bytes + reserve_bytes)
        encoder, schema = Encoder(source.leaves), schema_of(source.leaves)
        codec = Codec(schema, self.place.name)
        if source.is_stacked:
            records = codec.encode_rows(map(encoder.rows, source))
        else:
            records = codec.encode_each(map(encoder.values, source))
        _LOG.info("building the cache %s", self.place.url)
        facts = build_file(
            self._limited(records),
            schema,
            path,
            digest_type=ChecksumDigest,
            transaction_bytes=2_000_000,  # so few that their memory is used again
            limit_bytes=free_bytes - reserve_bytes if self.max_bytes is None else self.max_bytes,
            place=self.place.name,
            reserve_bytes=reserve_bytes,
        )
        if not facts.records:
            message = "the dataset has no elements"
            raise ConfigError("config.invalid_value", message, where=self.place.name)
        _LOG.info("built %s: %s", self.place.url, format_count(facts.records, "record"))
        return LayerCache(
            FORMAT,
            self.place.name,
            source.kind,
            self.function,
            encoder.leaves,
            f"{facts.sha256}.mdb",
            facts.bytes,
            facts.sha256,
            facts.digest,
            facts.records,
        )

    def _limited(self, records: Iterator[Buffer]) -> Iterator[Buffer]:
        for number, record in enumerate(records):
            if number == self.max_records:
                most = format_count(number, "element")
                message = f"the dataset has more than max_records, {most}"
                hint = "raise it, or end the dataset (does it repeat?)"
                raise FatalError("run.endless", message, where=self.place.name, hint=hint)
            yield record

    def _publish(
        self, cache: LayerCache, before: LayerCache | None, conditions: Conditions
    ) -> LayerCache:
        """Write cache.json unless somebody else has meanwhile; returns the one that is there."""
        data, options = seal(cache), WriteOptions(if_absent=conditions.if_absent)
        with published_file_errors(), suppress(PreconditionError):
            if before is not None:
                etag = self.store.head(KEY).etag
                options = WriteOptions(if_match=etag if conditions.if_match else None)
            if read_cache(self.store, self.place.name) == before:
                self.store.put(KEY, data, **options)
        published = read_cache(self.store, self.place.name)
        if published is None:
            raise not_kept(self._where, len(data), None)
        return published

    def _opened(self, cache: LayerCache, *, is_new: bool) -> CacheFileReader:
        place, folder, local = self.place, self.place.folder, self.place.local
        path, stamp = (folder or local) / cache.file, stamp_of(local / cache.file)
        with nullcontext() if folder else _alone(local):
            if folder is None:
                hold(self.store)
            while True:
                try:
                    with _held(path):
                        if not is_new:
                            _check(path, cache, stamp)
                        file = open_file(path, cache.facts)
                    break
                except DamageError as error:  # or there is no copy
                    if folder:
                        error.hint = BUILD_AGAIN
                    if folder or (is_new and path.exists()):
                        raise
                    path.unlink(missing_ok=True)
                    room = room_below(place.copies, place.limit_bytes)
                    download(self.store, cache.file, path, cache.bytes, cache.sha256, room)
                    is_new = True
        with suppress(OSError):
            os.utime(stamp)
        return file


def _shown(leaves: tuple[Leaf, ...]) -> str:
    return ", ".join(f"{leaf.name} {leaf.dtype}{list(leaf.shape or ())}" for leaf in leaves)


def _refuse_yogadl(store: Store) -> None:
    try:
        store.head(YOGADL_KEY)
    except NotFoundError:
        return
    message = "a cache of YogaDL, whose records are pickles: to read one is to run its code"
    where, hint = object_url(store.url, YOGADL_KEY), "delete it, or use another version"
    raise FatalError("cache.format", message, where=where, hint=hint)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process of this machine, or thread, works in a folder."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK):
        yield


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Keep a file from being removed until the block ends."""
    with disk_errors(path, reading=True):
        try:
            handle = open_shared(path)
        except FileNotFoundError:
            raise DamageError("damage.size", "the file is missing", where=str(path)) from None
    try:
        yield
    finally:
        os.close(handle)


def _check(path: Path, cache: LayerCache, stamp: Path) -> None:
    """Compare a file with its digest, unless that was done and it has not been written since.

    The system's times of the file say that; what was written a moment ago is compared again.
    """
    status = path.stat()
    cache.facts.compare(status.st_size, None, str(path))
    state = f"{status.st_dev} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}".encode()
    with suppress(OSError):
        if stamp.read_bytes() == state:
            return
    with disk_errors(path, reading=True):
        cache.facts.compare(status.st_size, sha256_file(path), str(path))
    if time.time() - status.st_ctime > _SETTLED_SECONDS:
        with suppress(LarderError):
            write_file(stamp, state)
