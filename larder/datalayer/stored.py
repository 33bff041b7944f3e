"""Open a cached dataset, building the cache first if needed.

The first process builds the cache; others on the machine wait for its lock, which ends with it.
Machines do not wait for each other: if two build, the first to create cache.json publishes its
cache, and the other reads that cache. Without cache.json no cache exists.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import Buffer, ChecksumDigest, Codec
from larder.cache.schema import RecordSchema
from larder.datalayer.cache_catalog import hold
from larder.datalayer.cache_place import CachePlace
from larder.datalayer.copies import check_fit, evict
from larder.datalayer.elements import Encoder, FunctionResult, Leaf, schema_of
from larder.datalayer.function import changes
from larder.datalayer.layer_cache import (
    BUILD_AGAIN,
    FORMAT,
    KEY,
    YOGADL_KEY,
    LayerCache,
    LayerFile,
    file_place,
    read_cache,
)
from larder.datalayer.layer_files import LayerFiles, alone
from larder.disk import (
    TEMPORARY_PREFIX,
    check_room,
    disk_errors,
    remove_abandoned_below,
    sync_folder,
    workshop,
)
from larder.errors import (
    ConfigError,
    FatalError,
    LarderError,
    NotFoundError,
    PreconditionError,
)
from larder.manifest.sealed import seal
from larder.store import object_url
from larder.store.base import Store, WriteOptions
from larder.store.own_files import not_kept, published_file_errors
from larder.units import format_count, format_names
from larder.versions.publish import KEPT, Conditions, probe_conditions

OnChange = Literal["warn", "error", "rebuild"]

DISK_RESERVE: Final = 0.05
"""The fraction of the free disk space that a build leaves."""

_LOG: Final = logging.getLogger("larder")
_LOCK: Final = ".larder.lock"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caching:
    """A function, and how to cache its elements.

    Attributes:
        function: Digests of the decorated function.
        make: Calls the decorated function.
        on_change: Reaction to a cache that was built by another function.
        file_bytes: Bytes of elements after which a file ends.
    """

    place: CachePlace
    store: Store
    function: Mapping[str, str]
    make: Callable[[], FunctionResult]
    on_change: OnChange
    max_bytes: int | None
    max_records: int | None
    file_bytes: int

    def open(self, begin: Callable[[LayerCache, LayerFiles], T]) -> T:
        """Return ``begin(cache, files)``, after building the cache if none exists."""
        for folder in (self.place.local, self.place.directory):
            if folder and next(folder.glob(f"{TEMPORARY_PREFIX}*-*"), None):
                remove_abandoned_below(folder, [folder])  # left by killed builders
        while True:
            cache, is_new = read_cache(self.store, self.place.name), False
            if cache is None or self._replaces(cache):
                cache, is_new = self._built()
            if changed := changes(cache.function, self.function):
                self._report(cache, changed)
            try:
                files = LayerFiles(self.place, cache)
                if self.place.folder is None:
                    hold(self.store)
                if self.place.folder or is_new:
                    for number in range(len(files)):
                        files.open(number, is_new=is_new)
                else:
                    check_fit(self.place.local, self.place.limit_bytes, cache.bytes)
                return begin(cache, files)
            except LarderError:
                if read_cache(self.store, self.place.name) == cache:
                    raise  # else the cache was removed or replaced meanwhile

    @property
    def _where(self) -> str:
        return object_url(self.store.url, KEY)

    def _replaces(self, cache: LayerCache) -> bool:
        return self.on_change == "rebuild" and bool(changes(cache.function, self.function))

    def _report(self, cache: LayerCache, changed: list[str]) -> None:
        """Report a changed function; refuse elements of another structure, type or shape.

        The function is called only if its source differs: then it may be another function.
        """
        message = f"the function has changed since the cache was built: {format_names(changed, 5)}"
        hint = "use another version, or on_change='rebuild'"
        if self.on_change == "error":
            raise ConfigError("cache.changed", message, where=self._where, hint=hint)
        _LOG.warning("%s: %s; %s", self._where, message, hint)
        if "source" in self.function.keys() & {*changed}:
            self._check_same(cache, self.make())

    def _check_same(self, cache: LayerCache, result: FunctionResult) -> None:
        mine, theirs = (
            [(leaf.path, leaf.dtype, leaf.shape) for leaf in each.leaves]
            for each in (result, cache)
        )
        if result.kind != cache.kind or mine != theirs:
            made, cached = _shown(result.leaves), _shown(cache.leaves)
            message = f"the elements are {made}, but the cache has {cached}"
            raise FatalError("cache.schema", message, where=self._where, hint=BUILD_AGAIN)

    def _built(self) -> tuple[LayerCache, bool]:
        """Return the published cache, and whether this process has built it."""
        home = self.place.folder or self.place.local
        with alone(home, _LOCK):
            before = read_cache(self.store, self.place.name)
            if before is not None and not self._replaces(before):
                return before, False  # built by the process that held the lock before
            if before is None:
                _refuse_yogadl(self.store)
            # Probe before the build: the probe also shows whether the storage can be written.
            is_bucket = not self.store.features.local_path
            conditions = probe_conditions(self.store) if is_bucket else KEPT
            result = self.make()
            with workshop(home) as bench:
                cache = self._build(result, bench)
                if self.place.folder is None:
                    for number, file in enumerate(cache.files):
                        self.store.upload(file.name, bench / f"{number}.mdb")
                    self._check_kept(cache)
                with disk_errors(home):
                    for number, file in enumerate(cache.files):
                        os.replace(bench / f"{number}.mdb", home / file.name)
                    sync_folder(os.fsencode(home))
            published = self._publish(cache, before, conditions)
            while self._replaces(published):  # another function was built meanwhile
                before = published
                published = self._publish(cache, before, conditions)
            named = {*published.files, *(before.files if before else ())}
            for file in {*cache.files} - named:
                with suppress(LarderError):
                    self.store.delete(file.name)
                (home / file.name).unlink(missing_ok=True)
            self._check_same(published, result)
            return published, published.files == cache.files

    def _build(self, result: FunctionResult, bench: Path) -> LayerCache:
        free_bytes = shutil.disk_usage(bench).free
        reserve_bytes = max(1, int(free_bytes * DISK_RESERVE))
        check_room(bench, result.need_bytes + reserve_bytes)
        self._make_room(result.need_bytes)
        limit_bytes = free_bytes - reserve_bytes if self.max_bytes is None else self.max_bytes
        encoder, schema = Encoder(result.leaves), schema_of(result.leaves)
        files: list[LayerFile] = []
        _LOG.info("building the cache %s", self.place.url)
        for records in self._divided(result, encoder, schema, files):
            facts = build_file(
                records,
                schema,
                bench / f"{len(files)}.mdb",
                digest_type=ChecksumDigest,
                limit_bytes=limit_bytes,
                used_bytes=_bytes_of(files),
                place=file_place(self.place.name, len(files)),
                reserve_bytes=reserve_bytes,
            )
            files.append(LayerFile(facts.bytes, facts.sha256, facts.digest, facts.records))
            self._make_room(_bytes_of(files))
        if not files:
            message = "the dataset has no elements"
            raise ConfigError("config.invalid_value", message, where=self.place.name)
        cache = LayerCache(
            FORMAT, self.place.name, result.kind, self.function, encoder.leaves, tuple(files)
        )
        _LOG.info("built %s: %s", self.place.url, format_count(cache.records, "record"))
        return cache

    def _make_room(self, size_bytes: int) -> None:
        """Remove copies of other caches for the build, which becomes a copy; or ``store.full``."""
        if self.place.folder is None:
            evict(self.place.copies, self.place.limit_bytes, size_bytes)

    def _divided(
        self, result: FunctionResult, encoder: Encoder, schema: RecordSchema, files: list[LayerFile]
    ) -> Iterator[Iterator[Buffer]]:
        """Yield the records of each file; the caller exhausts them before the next file.

        The caller appends each finished file to ``files``.
        """
        values = map(encoder.rows if result.is_stacked else encoder.values, result.elements())
        numbers = count()
        for number in count():
            codec = Codec(schema, file_place(self.place.name, number))
            encode = codec.encode_rows if result.is_stacked else codec.encode_each
            most_bytes = self.file_bytes
            if self.place.folder is None and self.place.limit_bytes is not None:
                # A file of this many bytes would be refused at its end: the limit leaves no more.
                most_bytes = min(most_bytes, max(1, self.place.limit_bytes - _bytes_of(files)))
            records = self._limited(encode(_until(values, most_bytes)), numbers)
            first = next(records, None)
            if first is None:
                return
            yield chain([first], records)

    def _limited(self, records: Iterable[Buffer], numbers: Iterator[int]) -> Iterator[Buffer]:
        for record, number in zip(records, numbers, strict=False):
            if number == self.max_records:
                most = format_count(number, "element")
                message = f"the dataset has more than max_records, {most}"
                hint = "raise it, or end the dataset (does it repeat?)"
                raise FatalError("run.endless", message, where=self.place.name, hint=hint)
            yield record

    def _check_kept(self, cache: LayerCache) -> None:
        """Refuse to publish a file that the bucket acknowledged but does not list in full."""
        sizes = {info.key: info.size_bytes for page in self.store.list() for info in page}
        for file in cache.files:
            if sizes.get(file.name) != file.bytes:
                where = object_url(self.store.url, file.name)
                raise not_kept(where, file.bytes, sizes.get(file.name))

    def _publish(
        self, cache: LayerCache, before: LayerCache | None, conditions: Conditions
    ) -> LayerCache:
        """Write cache.json unless another builder has meanwhile; return the published cache."""
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


def _bytes_of(files: Iterable[LayerFile]) -> int:
    return sum(file.bytes for file in files)


def _until(values: Iterator[Mapping[str, Any]], size_bytes: int) -> Iterator[Mapping[str, Any]]:
    for some in values:
        yield some
        size_bytes -= sum(getattr(value, "nbytes", None) or len(value) for value in some.values())
        if size_bytes <= 0:
            return


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
