"""Loaders of cached datasets: for batches, or for single elements as the function gave them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from larder.cache.record import empty_columns
from larder.datalayer.document import LayerCache
from larder.datalayer.elements import Leaf, assembled, stored_fields
from larder.datalayer.files import LayerFiles
from larder.datalayer.schedule import LayerDivision, LayerSchedule
from larder.readers.ahead import made_ahead
from larder.readers.batches import Batch, Empty
from larder.readers.loader import Loader
from larder.readers.memory import ReusedMemory
from larder.readers.order import WINDOW_SAMPLES, Numbers, Order
from larder.readers.sources import Read

_BLOCK_BYTES: Final = 16 << 20
"""The system allocates more than 4 MiB in large pages, which is much faster."""

_MOST_ELEMENTS: Final = 2_048


def block_elements(cache: LayerCache) -> int:
    """Return the number of elements to read at once if there are no batches."""
    return max(1, min(_MOST_ELEMENTS, _BLOCK_BYTES * cache.records // cache.bytes))


class Records:
    """A reader of records in the narrowest shape that fits all elements."""

    is_decoded = True

    def __init__(self, files: LayerFiles, leaves: Sequence[Leaf]) -> None:
        self._files = files
        self._fields = stored_fields(leaves)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self._fields]

    def read(self, shares: Sequence[Numbers]) -> list[Read]:
        return [partial(self._batch, share) for share in shares]

    def _batch(self, share: Numbers, empty: Empty) -> Batch:
        columns = empty_columns(self._fields, len(share), empty)
        self._files.read_into(columns, range(len(share)), share)
        return {**columns}

    def stored_bytes(self, numbers: Numbers) -> Numbers | None:
        del numbers
        return None


def columns_of(leaves: Sequence[Leaf], batch: Batch, *_: Any) -> Any:
    """Return the values of the leaves as a list; nothing is random, and nothing is skipped."""
    return [leaf.column(number, batch) for number, leaf in enumerate(leaves)]


def batch_of(leaves: Sequence[Leaf], batch: Batch, *_: Any) -> Any:
    """Return the values of the leaves in the form of an element."""
    return assembled([leaf.path for leaf in leaves], columns_of(leaves, batch))


class LayerLoader(Loader):
    """A rank's batches of a cached dataset; see `larder.readers.loader.Loader`."""

    cache: LayerCache

    def __len__(self) -> int:
        return self._division.batches_of(self.rank)

    def in_batches(self, size: int) -> LayerLoader:
        """Copy the loader, with the same order of elements and another batch size."""
        loader, schedule = copy(self), self._schedule
        assert isinstance(schedule, LayerSchedule), "the schedule is that of a cached dataset"
        loader._schedule = replace(schedule, batch_size=size)
        return loader

    def order(self, epoch: int) -> Order:
        """Return the order of an epoch, for all ranks together."""
        return self._order(epoch)

    def read(self, numbers: range, epoch: int | None = None) -> Generator[Any]:
        """Read like all loaders, but make all batches in one thread: two copy no faster."""
        return made_ahead(self._read_each(numbers, self.epoch if epoch is None else epoch))

    def _read_each(self, numbers: range, epoch: int) -> Generator[Any]:
        assert self._decode is not None, "a cached dataset has no records without a form"
        empty = ReusedMemory().empty
        for shares in self._shares(numbers, epoch, max(1, WINDOW_SAMPLES // self.batch_size)):
            for read in self._source.read(shares):
                yield self._decode(read(empty))

    def _shares(self, numbers: range, epoch: int, most: int) -> Iterator[list[Numbers]]:
        """Yield the rank's parts of batches, ``most`` at once."""
        order = self._order(epoch)
        for start in range(0, len(numbers), most):
            some = numbers[start : start + most]
            shares = self._division.shares(order, some[0], some[-1] + 1, self.rank)
            yield shares[:: numbers.step]

    @property
    def _division(self) -> LayerDivision:
        division = self._schedule.division(self.world)
        assert isinstance(division, LayerDivision), "the schedule is that of a cached dataset"
        return division


class ElementLoader(LayerLoader):
    """A loader of single elements, which reads several at once."""

    def read(self, numbers: range, epoch: int | None = None) -> Generator[Any]:
        epoch, block = self.epoch if epoch is None else epoch, block_elements(self.cache)
        paths, empty = [leaf.path for leaf in self.cache.leaves], ReusedMemory().empty
        for shares in self._shares(numbers, epoch, block):
            (read,) = self._source.read([np.concatenate(shares)])
            for leaves in zip(*columns_of(self.cache.leaves, read(empty)), strict=True):
                yield assembled(paths, leaves)
