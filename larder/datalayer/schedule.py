"""How a cached dataset is divided among ranks, and in which order: as YogaDL does.

Rank r of w has every w-th element of the order from the r-th on. So a batch of all ranks is the
next elements of the order, whatever the number of ranks and however they batch. Training leaves
out what the ranks cannot share evenly; of validation some ranks have one element more.
"""

from __future__ import annotations

from larder.readers.order import Division, Numbers, Order
from larder.readers.schedule import Schedule, WindowIndex


class LayerDivision(Division):
    """With ``even="drop"`` every rank has equally many elements; with ``pad`` all are used."""

    @property
    def used(self) -> int:
        """The number of elements of an epoch, of all ranks."""
        return self.samples - self.dropped

    @property
    def dropped(self) -> int:
        return self.samples % self.world if self.even == "drop" else 0

    @property
    def batches(self) -> int:
        return -(-self.used // self.batch_size)

    def elements_of(self, rank: int) -> int:
        """How many elements of an epoch a rank has."""
        return max(0, -(-(self.used - rank) // self.world))

    def batches_of(self, rank: int) -> int:
        """How many batches a rank has: one fewer than others, if it has no element of the last."""
        return -(-self.elements_of(rank) // (self.batch_size // self.world))

    def shares(self, order: Order, start: int, stop: int, rank: int) -> list[Numbers]:
        size = self.batch_size
        numbers = order.numbers(start * size, min(stop * size, self.used))
        firsts = range(0, len(numbers), size)
        return [numbers[first + rank : first + size : self.world] for first in firsts]


class LayerSchedule(Schedule):
    """The batches of a cached dataset."""

    def division(self, world: int) -> LayerDivision:
        return LayerDivision(len(self.choice), self.batch_size, world, self.even)


class OnceShuffled(LayerSchedule):
    """The same order in every epoch."""

    def order(self, epoch: int, index: WindowIndex) -> Order:
        del epoch
        return super().order(0, index)
