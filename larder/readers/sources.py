"""What batches are read from: the shards of a split, or its cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np

from larder.cache.fields import field_name
from larder.readers.batches import KEY, LABEL, Batch, Empty, batch_of, part_ext
from larder.readers.cache import CacheReader
from larder.readers.order import Numbers
from larder.readers.split import SplitSamples
from larder.samples.naming import LABEL_EXT


class BatchSource(Protocol):
    """What batches are read from."""

    @property
    def is_decoded(self) -> bool:
        """Whether reading is all that there is to do: it copies the arrays of a batch."""

    @property
    def names(self) -> Collection[str]:
        """What a batch may have."""

    def batches(self, shares: Sequence[Numbers], empty: Empty = np.empty) -> Sequence[Any]:
        """The batches of samples with these numbers, which are for a `Decode`."""

    def stored_bytes(self, numbers: Numbers) -> Numbers | None:
        """How much each sample takes; None if it is not worth reading several batches at once."""


class ShardSource:
    """Reads samples from shards."""

    is_decoded = False

    def __init__(self, samples: SplitSamples, parts: Collection[str] | None = None) -> None:
        self._samples = samples
        self._parts = parts

    def of(self, names: Collection[str]) -> ShardSource:
        """The same, of which no more than these is read."""
        return ShardSource(self._samples, frozenset(map(part_ext, {*names} - {KEY, LABEL})))

    @property
    def names(self) -> Collection[str]:
        names = {KEY, *(field_name(ext, "encoded") for ext in self._samples.exts)}
        return names - {LABEL_EXT} | {LABEL} if self._samples.is_labelled else names

    def batches(self, shares: Sequence[Numbers], empty: Empty = np.empty) -> list[Batch]:
        samples = self._samples.batch(np.concatenate(shares), self._parts)
        ends = np.cumsum([len(share) for share in shares]).tolist()
        starts = [0, *ends[:-1]]
        return [batch_of(samples[start:end]) for start, end in zip(starts, ends, strict=True)]

    def stored_bytes(self, numbers: Numbers) -> Numbers | None:
        return self._samples.stored_bytes(numbers, self._parts)


class CacheSource:
    """Reads records from a cache."""

    is_decoded = True

    def __init__(self, records: CacheReader, fields: Sequence[str] | None = None) -> None:
        self._records = records
        self._fields = fields

    def of(self, names: Collection[str]) -> CacheSource:
        """The same, of which no more than these is read."""
        fields = [name for name in self.names if name in names or name == KEY]
        return CacheSource(self._records, fields)

    @property
    def names(self) -> Collection[str]:
        return self._records.schema.names

    def batches(self, shares: Sequence[Numbers], empty: Empty = np.empty) -> list[Batch]:
        records, fields = self._records, self._fields
        return [records.batch(share, fields=fields, empty=empty) for share in shares]

    def stored_bytes(self, numbers: Numbers) -> Numbers | None:
        return None
