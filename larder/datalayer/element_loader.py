"""The source of a cached dataset's batches, and a loader of single elements."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np

from larder.datalayer.layer_cache import LayerCache
from larder.readers.batch_decoding import Empty
from larder.readers.cache_reader import CacheReader
from larder.readers.epoch_order import Numbers
from larder.readers.loader import Loader
from larder.readers.memory import ReusedMemory
from larder.readers.sources import CacheSource

_BLOCK_BYTES: Final = 16 << 20
"""The system allocates more than 4 MiB in large pages, which is much faster."""

_MOST_ELEMENTS: Final = 2_048


def block_elements(cache: LayerCache) -> int:
    """Return the number of elements to read at once if there are no batches."""
    return max(1, min(_MOST_ELEMENTS, _BLOCK_BYTES * cache.records // cache.bytes))


class ElementSource(CacheSource):
    """A source of batches in a form of the elements."""

    def __init__(self, records: CacheReader, form: Callable[[Any], Any]) -> None:
        super().__init__(records)
        self._form = form

    def _batch(self, share: Numbers, empty: Empty) -> Any:
        return self._form(super()._batch(share, empty))


class ElementLoader(Loader):
    """A loader of single elements, whose source gives a block of elements as a sequence.

    To read each element as a batch takes 60 times as long.
    """

    def __init__(self, block: int, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._block = block

    def read(self, numbers: range, epoch: int | None = None) -> Generator[Any]:
        """Yield the elements with these numbers; see `Loader.read`."""
        order = self._order(self.epoch if epoch is None else epoch)
        division, empty = self._schedule.division(self.world), ReusedMemory().empty
        for start in range(0, len(numbers), self._block):
            some = numbers[start : start + self._block]
            shares = division.shares(order, some[0], some[-1] + 1, self.rank)[:: some.step]
            (read,) = self._source.read([np.concatenate(shares)])
            yield from read(empty)
