"""The loaders of cached datasets: of batches, or of single elements as the function gave them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from larder.cache.record import empty_columns
from larder.datalayer.document import LayerCache
from larder.datalayer.elements import Leaf, assembled, stored_fields
from larder.datalayer.files import LayerFiles
from larder.datalayer.schedule import LayerDivision
from larder.readers.batches import Batch, Empty
from larder.readers.loader import Loader
from larder.readers.memory import ReusedMemory
from larder.readers.order import Numbers, Order
from larder.readers.sources import Read

_BLOCK_BYTES: Final = 16 << 20
"""Memory of more than 4 MiB is had in large pages, which takes much less time."""

_MOST_ELEMENTS: Final = 2_048


def block_elements(cache: LayerCache) -> int:
    """How many elements are read at once where there are no batches."""
    return max(1, min(_MOST_ELEMENTS, _BLOCK_BYTES * cache.records // cache.bytes))


class Records:
    """Reads records in the narrowest shape of all."""

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
    """The values of the leaves, in a list; nothing is random, and nothing is skipped."""
    return [leaf.column(number, batch) for number, leaf in enumerate(leaves)]


def batch_of(leaves: Sequence[Leaf], batch: Batch, *_: Any) -> Any:
    """The values of the leaves, in the form of an element."""
    return assembled([leaf.path for leaf in leaves], columns_of(leaves, batch))


class LayerLoader(Loader):
    """The batches that one rank has of a cached dataset; see `larder.readers.loader.Loader`."""

    def __len__(self) -> int:
        return self._division.batches_of(self.rank)

    def order(self, epoch: int) -> Order:
        """Of all ranks."""
        return self._order(epoch)

    @property
    def _division(self) -> LayerDivision:
        division = self._schedule.division(self.world)
        assert isinstance(division, LayerDivision), "the schedule is that of a cached dataset"
        return division


class ElementLoader(LayerLoader):
    """Single elements in place of batches, of which several are read at once."""

    cache: LayerCache

    def read(self, numbers: range, epoch: int | None = None) -> Generator[Any]:
        order = self._order(self.epoch if epoch is None else epoch)
        paths, block = [leaf.path for leaf in self.cache.leaves], block_elements(self.cache)
        empty = ReusedMemory().empty
        for start in range(0, len(numbers), block):
            some = numbers[start : start + block]
            shares = self._division.shares(order, some[0], some[-1] + 1, self.rank)
            (read,) = self._source.read([np.concatenate(shares[:: numbers.step])])
            for leaves in zip(*columns_of(self.cache.leaves, read(empty)), strict=True):
                yield assembled(paths, leaves)
