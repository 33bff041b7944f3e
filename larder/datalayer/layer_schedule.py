"""Division of a cached dataset among ranks, and the order of its elements, as in YogaDL.

Rank r of w has every w-th element of the order from the r-th on. So a batch of all ranks is the
next elements of the order, for any number of ranks and any batch size. Training leaves out the
elements that the ranks cannot share evenly; in validation some ranks have one element more.
"""

from __future__ import annotations

from larder.readers.epoch_order import Division, Numbers, Order
from larder.readers.schedule import Schedule, WindowIndex


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
