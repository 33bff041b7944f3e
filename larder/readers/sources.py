"""Sources of batches: the shards of a split, or its cache.

The leases of their version are renewed while they are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from larder.cache.fields import field_name
from larder.errors import LarderError
from larder.readers.access import DatasetAccess
from larder.readers.batch_decoding import KEY, LABEL, Batch, Empty, batch_of, part_ext
from larder.readers.cache_reader import CacheReader
from larder.readers.epoch_order import Numbers
from larder.readers.split import SplitSamples
from larder.samples.indexed import Sample
from larder.samples.naming import LABEL_EXT
from larder.versions.leases import renew_configs

Read = Callable[[Empty], Any]
"""Makes a batch for a `Decode`, in arrays that the given function makes.

Arrays are an argument of making one batch, so threads that read ahead have no arrays to write to.
"""


class BatchSource(Protocol):
    @property
    def is_decoded(self) -> bool:
        """Whether parts are decoded already, so that reading only copies arrays."""

    def read(self, shares: Sequence[Numbers]) -> Sequence[Read]:
        """Read samples with these numbers ahead, for one batch of each share.

        A decoded source reads while a batch is made, because reading only copies.
        """

    def stored_bytes(self, numbers: Numbers) -> Numbers:
        """Return the bytes of each sample that are read ahead."""


class ShardSource:
    is_decoded = False

    def __init__(self, samples: SplitSamples, parts: Collection[str] | None = None) -> None:
        self._samples = samples
        self._parts = parts

    def of(self, names: Collection[str]) -> ShardSource:
        """Return a source that reads only these names."""
        return ShardSource(self._samples, frozenset(map(part_ext, {*names} - {KEY, LABEL})))

    @property
    def names(self) -> Collection[str]:
        """Names of the values that a batch may have."""
        names = {KEY, *(field_name(ext, "encoded") for ext in self._samples.exts)}
        return names - {LABEL_EXT} | {LABEL} if self._samples.classes else names

    def read(self, shares: Sequence[Numbers]) -> list[Read]:
        samples = self._samples.batch(np.concatenate(shares), self._parts)
        bounds = np.cumsum([0, *map(len, shares)]).tolist()
        return [partial(_batch_of, samples[start:end]) for start, end in pairwise(bounds)]

    def stored_bytes(self, numbers: Numbers) -> Numbers:
        return self._samples.stored_bytes(numbers, self._parts)


class CacheSource:
    is_decoded = True

    def __init__(self, records: CacheReader, fields: Sequence[str] | None = None) -> None:
        self._records = records
        self._fields = fields

    def of(self, names: Collection[str]) -> CacheSource:
        """Return a source that reads only these names."""
        fields = [name for name in self.names if name in names or name == KEY]
        return CacheSource(self._records, fields)

    @property
    def names(self) -> Collection[str]:
        return self._records.schema.names

    def read(self, shares: Sequence[Numbers]) -> list[Read]:
        return [partial(self._batch, share) for share in shares]

    def _batch(self, share: Numbers, empty: Empty) -> Batch:
        return self._records.batch(share, fields=self._fields, empty=empty)

    def stored_bytes(self, numbers: Numbers) -> Numbers:
        return np.zeros_like(numbers)


def _batch_of(samples: Sequence[Sample], _empty: Empty) -> Batch:
    return batch_of(samples)


EVERY_SECONDS = 24 * 3600.0


class LeasedSource:
    """Reads from another source, and renews the leases of the version's configs once a day.

    The first renewal follows the second reading, so a look at some samples costs nothing. Only
    training that outlasts its lease needs a renewal, so a failed or refused one is no error.
    """

    def __init__(self, source: BatchSource, access: DatasetAccess, version: str) -> None:
        self.is_decoded = source.is_decoded
        self.stored_bytes = source.stored_bytes
        self._read = source.read
        self._access = access
        self._version = version
        self._due: float | None = None

    def read(self, shares: Sequence[Numbers]) -> Sequence[Read]:
        reads, now = self._read(shares), time.monotonic()
        if self._due is None:
            self._due = now
        elif self._due <= now:
            self._due = now + EVERY_SECONDS
            with suppress(LarderError):
                renew_configs(self._access.store(), self._version, time.time_ns() // 1000)
        return reads
