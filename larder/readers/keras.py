"""Keras: the batches of a loader as a PyDataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

import keras
import keras.src.trainers.data_adapters as adapters

from larder.readers.loader import Loader
from larder.readers.schedule import check_columns, invalid


class BatchSequence(keras.utils.PyDataset):
    """The batches of one rank by number, for ``model.fit``.

    Batches may be read in any order, by several threads: each waits for a process of the loader.
    Every epoch has its own order, which Keras does not shuffle again. Keras does not tell the
    number of an epoch, and ends an epoch when it builds the model. With ``callback()`` among the
    callbacks, epoch N of Keras is epoch N of the loader, and the loader counts trained batches.
    After a state in the middle of an epoch, every epoch of Keras begins there and goes on into the
    next one. ``steps_per_epoch``, ``validation_steps`` and ``steps`` are refused: choose fewer
    samples, or train from ``data.tf``.

    Args:
        batches: The loader.
        columns: Names of the values for Keras, in order, such as ``("image", "label")``;
            None for a dictionary of all values.
        max_queue_size: Batches that are read ahead; by default two for each process, at least 10.
    """

    def __init__(
        self, batches: Loader, columns: Sequence[str] | None, max_queue_size: int | None = None
    ) -> None:
        workers = max(1, batches.workers)
        super().__init__(workers, max_queue_size=max_queue_size or max(10, 2 * workers))
        self.batches = batches
        self._columns = columns
        self._first: int | None = None

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Any:
        """Read a batch of the epoch: a tuple of ``columns``, or a dictionary."""
        batch = self.batches.batch(self._begun + number)
        if self._columns is None or not isinstance(batch, Mapping):
            return batch
        check_columns(batch, self._columns)
        return tuple(batch[name] for name in self._columns)

    def callback(self) -> keras.callbacks.Callback:
        """Make the callback for ``model.fit`` that moves the loader and counts trained batches.

        Epochs of Keras are the loader's, from ``initial_epoch`` on, and begin at the batch of a
        state loaded before.
        """
        before = self.batches.batches
        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self._begin(epoch * len(self) + before),
            # A step of several executions may end after the last batch.
            on_train_batch_end=lambda batch, logs: self._go_to(
                self._begun + min(batch + 1, len(self))
            ),
            on_train_end=lambda logs: setattr(self, "_first", None),
        )

    def on_epoch_end(self) -> None:
        """Go to the next epoch. Keras calls it."""
        first = self._begun + len(self)
        if self._first is None:
            self._go_to(first)
        else:
            self._begin(first)

    @property
    def _begun(self) -> int:
        """Start of the epoch of Keras, in batches of all epochs of the loader."""
        if self._first is None:  # without the callback, only whole epochs are counted
            return self.batches.epoch * len(self) + self.batches.batches
        return self._first

    def _begin(self, first: int) -> None:
        self._first = first
        self._go_to(first)

    def _go_to(self, batches: int) -> None:
        self.batches.go_to(*divmod(batches, len(self)))


def _adapt() -> None:
    """Have Keras take the batches of a sequence in their order, and to the end of an epoch.

    By default Keras shuffles the numbers of batches, so a count of batches would not tell which
    batches were read. With ``steps_per_epoch``, Keras reads on while the epoch ends.
    """
    adapt = adapters.get_data_adapter

    @wraps(adapt)
    def adapting(x: Any, *args: Any, **options: Any) -> Any:
        if isinstance(x, BatchSequence):
            if steps := options.get("steps_per_epoch"):
                message = f"{steps} steps are no epoch, which has {len(x)} batches"
                hint = "leave it out, and choose fewer samples, or train from data.tf"
                raise invalid(message, "steps_per_epoch, validation_steps or steps", hint)
            options["shuffle"] = False
        return adapt(x, *args, **options)

    adapters.get_data_adapter = adapting


_adapt()
