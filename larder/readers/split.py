"""Samples of a split by number: one, a batch, or all in order, read from the split's shards."""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar, get_args

import numpy as np

from larder.config.shape import MAX_PIXELS, DecoderUse
from larder.errors import DamageError
from larder.forking import cached_property
from larder.manifest.sealed import REPAIR, StoredFile
from larder.packages import missing_package
from larder.readers.access import DatasetAccess
from larder.readers.keep import KeptShards
from larder.readers.memory import keep_freed_memory
from larder.readers.numbers import Array, checked_numbers, numbers_of
from larder.readers.options import Check
from larder.readers.schedule import choice
from larder.readers.segment import Exts, LiveSamples, Span
from larder.samples.decoders import IMAGES
from larder.samples.indexed import IndexedPart, IndexedSample, Sample, SampleReader
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.store.interrupt import check_wait, stopped_with_caller
from larder.store.own_files import once_more
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.index import SegmentIndex
from larder.versions.omitted import Omitted, Place, read_omitted
from larder.versions.publish import existing_segment

S = TypeVar("S")
T = TypeVar("T")

THREADS = 8
"""Most requests at once; all splits of a process share the threads."""

_LOT_SAMPLES = 1_024
_LOT_BYTES = 32 << 20
_LOT_ROWS = 65_536
_PROBES = 5
"""Samples that `_is_lost` tries to read in a damaged shard."""


class SplitSamples(Sequence[Sample]):
    """The samples of one split, in the order of the version, without omitted samples.

    May be used by many threads and after a fork, and be pickled for workers of any kind. Made by
    `larder.readers.data.Data.samples_of`. Without ``kept``, reads nothing before use.

    Memory holds the result of a call, and at most 128 blocks of 4,096 samples of the index.

    Args:
        version: The version.
        split: Name of the split.
        access: Access to the dataset.
        check: Parts that are compared with their CRC-32C. ``always``: all parts that are read.
            ``once``: the parts of a sample that this process reads for the first time. ``never``:
            none.
        kept: Directory of kept shards; with kept shards, ``once`` compares no parts, because their
            digests were compared.

    Raises:
        ConfigError: ``config.invalid_value``: another ``check``, or a shard that exceeds the limit
            of kept shards.
    """

    def __init__(
        self,
        version: VersionDocument,
        split: str,
        access: DatasetAccess,
        check: Check = "always",
        kept: KeptShards | None = None,
    ) -> None:
        choice("check", check, get_args(Check))
        self.split = split
        self._version = version
        self._access = access
        self._check = check
        self._loaded: tuple[Store, list[LiveSamples], Array] | None = None
        # Whether each sample's parts were compared, by the extensions that were read.
        self._checked = defaultdict[Exts | None, Array](partial(np.zeros, len(self), np.bool_))
        self._kept = kept
        self._etags: dict[str, str] = {}
        self._open: tuple[int, str, int, SampleReader] | None = None
        if kept is not None:
            kept.check_limit(max((file.bytes for file in self.shard_files()), default=0))

    def __repr__(self) -> str:
        """Show dataset, version, split and the number of samples."""
        version = f"{self._version.dataset}@{self._version.id}"
        return f"<larder.SplitSamples {version} {self.split}: {len(self)} samples>"

    def __len__(self) -> int:
        return self._version.splits[self.split].samples

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Any:
        """Read one sample, or a list of several for a slice or a list of numbers.

        Negative numbers count from the end.

        Raises:
            IndexError: The sample does not exist.
            TypeError: A number is not an integer.
            LarderError: As in `batch`.
        """
        numbers, is_one = numbers_of(index, len(self), "sample")
        samples = self.batch(numbers)
        return samples[0] if is_one else samples

    def batch(
        self, numbers: Sequence[int] | Array, parts: Collection[str] | None = None
    ) -> list[Sample]:
        """Read several samples at once: the fastest way to read.

        Neighbours in a shard are read with one request, of at most 8 MiB unless a part is larger.
        Up to eight requests are made at once. Samples in Parquet are read shard by shard.

        Args:
            numbers: Numbers of samples, in any order; duplicates are allowed.
            parts: Extensions of the parts to read, if not all.

        Returns:
            The samples in the order of ``numbers``.

        Raises:
            IndexError: A sample does not exist.
            TypeError: A number is not an integer, or ``numbers`` is a mask.
            DamageError: ``damage.record``: a part differs from the index; ``damage.size``,
                ``damage.digest``, ``damage.manifest``: a shard, the index or a document is damaged;
                ``object.missing`` is a shard that was deleted.
            ConfigError: ``config.invalid_value``: a shard format of a newer Larder;
                ``config.missing_package``.
        """
        wanted = checked_numbers(numbers, len(self), "sample")
        unique, places = np.unique(wanted, return_inverse=True)
        samples = self._read(unique, None if parts is None else frozenset(parts))
        return [samples[place] for place in places.tolist()]

    def __iter__(self) -> Iterator[Sample]:
        return self.between(0, len(self))

    def between(self, start: int, stop: int) -> Iterator[Sample]:
        """Yield the samples from ``start`` to ``stop``, read in lots of at most 32 MiB."""
        stop = min(stop, len(self))
        while start < stop:
            numbers = np.arange(start, min(start + _LOT_SAMPLES, stop))
            ends = np.cumsum(self.stored_bytes(numbers))
            count = max(1, int(np.searchsorted(ends, _LOT_BYTES, "right")))
            yield from self._read(numbers[:count], None)
            start += count

    @property
    def shard_samples(self) -> Array:
        """Number of samples of each shard of the split, in order; int64.

        The first shard has the samples from 0 on, and so on. Shards without samples of the version
        are left out.
        """
        _, segments, _ = self._parts
        return np.concatenate([np.zeros(0, np.int64), *(one.shard_samples() for one in segments)])

    def stored_bytes(
        self, numbers: Sequence[int] | Array, parts: Collection[str] | None = None
    ) -> Array:
        """Return the bytes that each sample's parts take, as `batch` reads them; int64.

        Reads the index, but no shard.
        """
        wanted = checked_numbers(numbers, len(self), "sample")
        unique, places = np.unique(wanted, return_inverse=True)
        stored, _ = self.measures_of(unique, None if parts is None else frozenset(parts))
        return stored[places]

    def labels(self) -> Array:
        """Return the class number of each sample, or -1; int64. Reads the index, but no shard."""
        return np.concatenate([np.zeros(0, np.int64), *(labels for _, labels in self.measures())])

    def keys(self) -> list[str]:
        """Return the key of each sample. Reads the index, but no shard."""
        return [key for numbers in self.lots() for key in self.keys_of(numbers)]

    def lots(self) -> Iterator[Array]:
        """Yield the numbers of all samples in order, in lots for reading the index."""
        for start in range(0, len(self), _LOT_ROWS):
            yield np.arange(start, min(start + _LOT_ROWS, len(self)))

    def measures(self) -> Iterator[tuple[Array, Array]]:
        """Yield `measures_of` of all samples, in order and in lots."""
        return map(self.measures_of, self.lots())

    def measures_of(self, numbers: Array, exts: Exts | None = None) -> tuple[Array, Array]:
        """Return the stored bytes of samples, and their labels or -1; int64.

        ``numbers`` are in ascending order.
        """
        mapped = _process(os.getpid()).map
        segments = self._segments_of(numbers)
        pairs = [segment.measures(inside, mapped, exts) for segment, inside, _ in segments]
        stored, labels = zip(*pairs, strict=True) if pairs else ((), ())
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *stored]), np.concatenate([none, *labels])

    def keys_of(self, numbers: Array) -> list[str]:
        """Return the keys of samples, given their numbers in ascending order."""
        return [
            key
            for segment, inside, _ in self._segments_of(numbers)
            for key in segment.index.keys(segment.row_numbers(inside))
        ]

    def indexed(self, numbers: Array) -> Iterator[IndexedSample]:
        """Yield the index entries of samples, given their numbers in ascending order."""
        for segment, inside, _ in self._segments_of(numbers):
            yield from segment.index.samples(segment.row_numbers(inside))

    @property
    def has_shards_local(self) -> bool:
        """Whether shards are read from a disk of this machine, or a mounted file system."""
        store, _, _ = self._parts
        return self._kept is not None or store.features.local_path

    @property
    def exts(self) -> set[str]:
        """Extensions of parts, maybe also of parts that only other splits have."""
        _, segments, _ = self._parts
        return {ext for segment in segments for ext in segment.index.exts}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the version's classes in the order of their numbers; empty without labels."""
        return self._version.classes

    @property
    def uses(self) -> tuple[DecoderUse, ...]:
        """Decoders of images and masks that the version sets, besides the rules for extensions."""
        lines = (use for document in self._documents for use in document.shape.images.uses)
        return tuple(dict.fromkeys(use for use in lines if use.use in IMAGES))

    @property
    def max_pixels(self) -> int:
        """The largest ``images.max_pixels`` that the version's images were checked with."""
        limits = (document.shape.images.max_pixels for document in self._documents)
        return max([MAX_PIXELS, *limits])

    @cached_property
    def _documents(self) -> list[SegmentDocument]:
        """Documents of the segments that have the split."""
        store = self._store_of_documents
        documents = (existing_segment(store, use.id) for use in self._version.segments)
        with self._access.cleaned_errors(self._version.id):
            return [document for document in documents if self.split in document.splits]

    @property
    def _store_of_documents(self) -> Store:
        store = self._access.store()
        return store if self._kept is None else self._kept.documents(store, self._version)

    def shard_files(self) -> Iterator[StoredFile]:
        """Yield all files of the split's shards in order."""
        _, segments, _ = self._parts
        for segment in segments:
            for shard in segment.listed_shards():
                yield from shard.files

    def __getstate__(self) -> dict[str, Any]:
        unchecked = defaultdict[Exts | None, Array](self._checked.default_factory)
        return self.__dict__ | {"_loaded": None, "_open": None, "_checked": unchecked}

    @property
    def _parts(self) -> tuple[Store, list[LiveSamples], Array]:
        """Store, segments, and the number of the first sample of each, then of the end."""
        loaded = self._loaded
        if loaded is None:  # two threads may load at the same time, with the same result
            store = self._access.store()
            documents = self._store_of_documents
            with self._access.cleaned_errors(self._version.id):
                omitted = read_omitted(documents, self._version)
            segments = [
                once_more(partial(self._segment, documents, omitted, each))
                for each in self._documents
            ]
            starts = np.cumsum([0, *map(len, segments)])
            if starts[-1] != len(self):
                message = f"split {self.split!r} has {starts[-1]} samples instead of {len(self)}"
                where = object_url(store.url, layout.version_key(self._version.id))
                raise DamageError("damage.manifest", message, where=where, hint=REPAIR)
            loaded = self._loaded = store, segments, starts
        return loaded

    def _segment(
        self, store: Store, omitted: Mapping[Place, Omitted], document: SegmentDocument
    ) -> LiveSamples:
        """Open a segment's index in the store with the documents."""
        directory, classes = self._access.cache_dir, len(self._version.classes)
        index = SegmentIndex(store, document.file("rows"), directory, document.samples, classes)
        gone = omitted.get((document.id, self.split), Omitted.none())
        return LiveSamples(document, self.split, gone, index)

    def _segments_of(self, numbers: Array) -> Iterator[tuple[LiveSamples, Array, Array]]:
        """Yield the segments of samples, given their numbers in ascending order.

        Each comes with its samples' numbers, counted in the segment and in the split.
        """
        _, segments, starts = self._parts
        cuts = np.searchsorted(numbers, starts).tolist()
        for segment, first, (start, stop) in zip(segments, starts, pairwise(cuts), strict=False):
            if start < stop:
                yield segment, numbers[start:stop] - first, numbers[start:stop]

    def _read(self, numbers: Array, exts: Exts | None) -> list[Sample]:
        """Read samples in ascending order."""
        threads = _process(os.getpid())
        read_all = partial(self._read_shard, exts, self._with_shard)
        with self._access.cleaned_errors(self._version.id):
            lots = [
                segment.locate(inside, self._unchecked(every, exts), threads.map, exts)
                for segment, inside, every in self._segments_of(numbers)
            ]
            spans = [span for lot in lots for span in lot.spans(THREADS * self.has_shards_local)]
            list((threads.map if len(spans) > 1 else map)(self._read_span, spans))
            samples = [sample for lot in lots for sample in lot.finish(read_all)]
        if self._check == "once":
            self._checked[exts][numbers] = True
        return samples

    def _unchecked(self, numbers: Array, exts: Exts | None) -> Array:
        if self._check == "once" and self._kept is None:
            return ~self._checked[exts][numbers]
        return np.full(len(numbers), self._check == "always")

    def _read_span(self, span: Span) -> None:
        segment = span.samples.live
        key = segment.shard_key(span.shard)
        etag = self._with_shard(segment, span.shard, span.read, span.stop)
        if self._kept is None and etag and self._etags.setdefault(key, etag) != etag:
            if self._check != "always":
                raise self._replaced(key)
            self._etags[key] = etag  # the shard was restored: its parts were compared

    def _is_other(self, key: str, published: StoredFile) -> bool:
        """Whether a damaged shard differs from the published one, or from the one read before."""
        store, _, _ = self._parts
        shard = store.head(key)
        first = self._etags.get(key, shard.etag)
        return (shard.size_bytes, shard.etag) != (published.bytes, first)

    def _replaced(self, key: str) -> DamageError:
        store, _, _ = self._parts
        message = "the shard is not the one that was published or read before, or all is damaged"
        return DamageError("damage.digest", message, where=object_url(store.url, key))

    def _with_shard(
        self, segment: LiveSamples, name: str, reading: Callable[[Store, str], T], stop: int = 0
    ) -> T:
        """Call a function with the store and the key of a shard, or of its kept copy.

        Damage of the whole shard is ``damage.digest``; other damage is of a sample. If the shard
        ends before ``stop``, where the function reads to, the index is damaged.
        """
        check_wait()  # a directory does not look for a stop
        key = segment.shard_key(name)
        try:
            return once_more(partial(self._read_copy, segment, name, reading))
        except DamageError as error:
            published = segment.shard_files.get(name)
            if published is None or stop > published.bytes:
                message = f"the index names byte {stop:,} of the shard, which has none"
                where = object_url(self._parts[0].url, key)
                raise DamageError("damage.manifest", message, where=where) from error
            if self._is_other(key, published) or self._is_lost(segment, name):
                raise self._replaced(key) from error
            raise

    def _read_copy(self, segment: LiveSamples, name: str, reading: Callable[[Store, str], T]) -> T:
        store, _, _ = self._parts
        key = segment.shard_key(name)
        if self._kept is None:
            return reading(store, key)
        published = segment.shard_files.get(name)
        if published is None:
            message, where = "the split has no such shard", object_url(store.url, key)
            raise DamageError("damage.manifest", message, where=where)
        return self._kept.read(store, published, reading)

    def _is_lost(self, segment: LiveSamples, name: str) -> bool:
        """Whether a shard has several samples, and none of a few spread over it can be read."""
        numbers = segment.spread(name, _PROBES)
        return len(numbers) > 1 and not any(self._is_readable(segment, one) for one in numbers)

    def _is_readable(self, segment: LiveSamples, number: int) -> bool:
        lot = segment.locate(np.array([number]), np.ones(1, np.bool_), map)
        try:
            for span in lot.spans():
                self._read_copy(segment, span.shard, span.read)
            list(lot.finish(partial(self._read_shard, None, self._read_copy)))
        except DamageError:
            return False
        return True

    def _read_shard(
        self,
        exts: Exts | None,
        read: Callable[..., list[dict[str, bytes]]],
        segment: LiveSamples,
        name: str,
        samples: Sequence[IndexedSample],
    ) -> list[dict[str, bytes]]:
        """Read the parts of a shard's samples, in the shard's order, with the format's reader."""
        return read(segment, name, partial(self._read_opened, segment.document, samples, exts))

    def _read_opened(
        self,
        segment: SegmentDocument,
        samples: Sequence[IndexedSample],
        exts: Exts | None,
        store: Store,
        key: str,
    ) -> list[dict[str, bytes]]:
        """Read samples with the format's reader, which stays open for later samples."""
        process = _process(os.getpid())
        with process.lock:
            pid, open_key, end, reader = self._open or (0, "", 0, None)
            if reader is None or (pid, open_key) != (process.pid, key) or samples[0].offset < end:
                if reader is not None and pid == process.pid:
                    reader.close()
                self._open = None
                reader = _open(segment, store, key)
            self._open = process.pid, key, sys.maxsize, reader  # not used again if it fails midway
            contents = [dict(reader.read(sample, _parts(sample, exts))) for sample in samples]
            self._open = process.pid, key, samples[-1].offset + 1, reader
        return contents


class _ProcessThreads:
    """Threads and lock of a process, which a forked child cannot use."""

    def __init__(self, pid: int) -> None:
        keep_freed_memory()
        self.pid = pid
        self.lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="larder-samples")

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """Call the function in threads; a stop of this thread's work ends the calls too."""
        return self._threads.map(stopped_with_caller(function), items)


_process = lru_cache(1)(_ProcessThreads)
"""Returns the threads of this process, which start when needed."""


def _parts(sample: IndexedSample, exts: Exts | None) -> list[IndexedPart] | None:
    return None if exts is None else [part for part in sample.parts if part.ext in exts]


def _open(segment: SegmentDocument, store: Store, key: str) -> SampleReader:
    try:
        return shard_format(*segment.shape.use).open(store, key)
    except ImportError as error:
        raise missing_package(error) or error from None
