"""The batches of a cached dataset: their order, as in YogaDL, their source, and their loader.

Rank r of w has every w-th element of the order from the r-th on. So a batch of all ranks is the
next elements of the order, for any number of ranks and any batch size. Training leaves out the
elements that the ranks cannot share evenly; in validation some ranks have one element more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np

from larder.datalayer.layer_cache import LayerCache
from larder.readers.batch_decoding import Empty
from larder.readers.cache_reader import CacheReader
from larder.readers.epoch_order import Division, Numbers, Order
from larder.readers.loader import Loader
from larder.readers.memory import ReusedMemory
from larder.readers.schedule import Schedule, WindowIndex
from larder.readers.sources import CacheSource


class LayerDivision(Division):
    """Division by stride; ``even="drop"`` gives ranks equal counts, ``pad`` uses all elements."""

    @property
    def batches(self) -> int:
        return self.batches_of(0)

    @property
    def dropped(self) -> int:
        return self.samples % self.world if self.even == "drop" else 0

    def batches_of(self, rank: int) -> int:
        """Return a rank's number of batches: one fewer if the last batch has no element for it."""
        elements = -(-(self.samples - self.dropped - rank) // self.world)
        return -(-elements // (self.batch_size // self.world))

    def _share(self, order: Order, batch: Numbers, rank: int) -> Numbers:
        del order
        return batch[rank :: self.world]


class LayerSchedule(Schedule):
    """The batches of a cached dataset."""

    def division(self, world: int) -> LayerDivision:
        return LayerDivision(len(self.choice), self.batch_size, world, self.even)


class OnceShuffled(LayerSchedule):
    """A schedule with one order for all epochs."""

    def order(self, epoch: int, index: WindowIndex) -> Order:
        del epoch
        return super().order(0, index)


_BLOCK_BYTES: Final = 16 << 20
"""The system allocates more than 4 MiB in large pages, which is much faster."""

_MOST_ELEMENTS: Final = 2_048


def block_elements(cache: LayerCache) -> int:
    return max(1, min(_MOST_ELEMENTS, _BLOCK_BYTES * cache.records // cache.bytes))


class ElementSource(CacheSource):
    """A source of batches in a form of the elements."""

    def __init__(self, records: CacheReader, form: Callable[[Any], Any]) -> None:
        super().__init__(records)
        self._form = form

    def _batch(self, share: Numbers, empty: Empty) -> Any:
        return self._form(super()._batch(share, empty))


class ElementLoader(Loader):
    """A loader of single elements, read in blocks: a batch for each would take 60 times as long."""

    def __init__(self, block: int, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._block = block

    def read(self, numbers: range, epoch: int | None = None) -> Generator[Any]:
        order = self._order(self.epoch if epoch is None else epoch)
        division, empty = self._schedule.division(self.world), ReusedMemory().empty
        for start in range(0, len(numbers), self._block):
            some = numbers[start : start + self._block]
            shares = division.shares(order, some[0], some[-1] + 1, self.rank)[:: some.step]
            (read,) = self._source.read([np.concatenate(shares)])
            yield from read(empty)
