"""Keras: the batches of a loader as a PyDataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from larder.readers.columns import select
from larder.readers.loader import Loader
from larder.readers.schedule import invalid


class BatchSequence(keras.utils.PyDataset):
    """The batches of one rank by number, for ``model.fit``.

    Batches may be read in any order, by several threads: one for each process of the loader, which
    waits for it. Every epoch has an order of its own. Keras
    does not say which epoch it is, and ends one when it builds the model: with ``callback()`` among
    the callbacks, its epoch N is that of the loader. To go on in the middle of an epoch, or to take
    fewer steps than there are, train from ``data.tf``.

    Args:
        batches: The loader.
        columns: Names of the values that Keras gets, in order, such as ``("image", "label")``;
            None for a dictionary of all.
        max_queue_size: Batches that are read ahead; by default two for each process, at least 10.
    """

    def __init__(
        self, batches: Loader, columns: Sequence[str] | None, max_queue_size: int | None = None
    ) -> None:
        workers = max(1, batches.workers)
        super().__init__(workers, max_queue_size=max_queue_size or max(10, 2 * workers))
        self.batches = batches
        self._columns = columns

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return len(self.batches)

    def __getitem__(self, number: int) -> Any:
        """A batch of the epoch: a tuple of ``columns``, or a dictionary.

        Raises:
            ConfigError: ``config.invalid_value``: it has no such column; or the loader has a state
                in the middle of an epoch.
            LarderError: It cannot be read or decoded.
        """
        if self.batches.batches:
            message = f"the state is after {self.batches.batches} batches of an epoch"
            raise invalid(message, "state", "train from data.tf, or with a state between epochs")
        return select(self.batches.batch(number), self._columns)

    def callback(self) -> keras.callbacks.Callback:
        """For ``model.fit``: every epoch is the loader's, from ``initial_epoch`` on."""
        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self.batches.go_to(epoch, 0)
        )

    def on_epoch_end(self) -> None:
        """Go to the next epoch. Keras calls it."""
        self.batches.go_to(self.batches.epoch + 1, 0)
