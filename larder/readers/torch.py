"""PyTorch: batches of a loader as an IterableDataset, and samples by number as a Dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final

import numpy as np
import torch.utils.data

from larder.errors import ConfigError, Failures
from larder.readers.batch_decoding import Batch, rows_of, share_cores
from larder.readers.launcher import refuse_ranks
from larder.readers.loader import Decode, Loader
from larder.readers.numbers import Array, checked_numbers, numbers_of
from larder.readers.schedule import invalid, whole
from larder.readers.sources import BatchSource

_SIZED: Final = "a batch has the samples that batch_size of data.torch says"

_FIXED: Final = (
    ("persistent_workers", False, "workers cannot be kept from epoch to epoch"),
    ("in_order", True, "batches that come in another order cannot be counted"),
    ("batch_size", None, _SIZED),
)
"""Options of DataLoader that allow one value only."""


class DataLoaderError(ConfigError):
    """A refused use of a plain DataLoader.

    PyTorch makes a worker's error again in the training process, with the traceback as its only
    argument. So each refusal is a class of its own.
    """

    text: str
    remedy: str

    def __init__(self, _traceback: str = "") -> None:
        super().__init__("config.invalid_value", self.text, where="DataLoader", hint=self.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), ())


class UncountedError(DataLoaderError):
    """Workers have read an epoch, so the training process has no state and no next epoch."""

    text = "its workers have read this epoch, which the training process cannot count"
    remedy = "use dataset.loader(num_workers=N); else call dataset.set_epoch(epoch) before each one"


class RebatchedError(DataLoaderError):
    """The DataLoader makes batches of batches."""

    text = _SIZED
    remedy = "use dataset.loader(), or give DataLoader batch_size=None"


class BatchDataset(torch.utils.data.IterableDataset[Batch]):
    """The batches of one rank; `loader` makes its DataLoader.

    A plain ``DataLoader(dataset, batch_size=None)`` reads, too. Worker w of W makes the batches w,
    w + W, ...: DataLoader takes a batch of each worker in turn. So training gets the batches in the
    loader's order. But the training process does not know what workers have read. With workers of
    a plain DataLoader there is no state, and each further epoch needs `set_epoch`. The dataset can
    be pickled for workers of any kind, also after batches were read.
    """

    def __init__(self, batches: Loader) -> None:
        super().__init__()
        self._batches = batches
        self._resumed_epoch = 0
        self._has_begun = False
        """Whether this process has read as a worker."""
        self._is_uncounted = torch.zeros(1, dtype=torch.bool)
        """Whether workers of a plain DataLoader have read the epoch; workers share it."""
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be sent to a spawned worker, which does not know the rank of its parent."""
        if not self._batches.is_ranked:
            refuse_ranks("DataLoader")
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the flag again: it stays shared only if it was pickled for a worker."""
        self.__dict__.update(state)
        self._share()

    def _share(self) -> None:
        with suppress(RuntimeError):  # no room in /dev/shm, which workers need for batches, too
            self._is_uncounted.share_memory_()

    @property
    def batches(self) -> Loader:
        """The loader of the batches.

        Raises:
            ConfigError: ``config.invalid_value``: workers of a plain DataLoader read the epoch.
        """
        if self._is_uncounted:
            raise UncountedError
        return self._batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of an epoch; in a worker of a DataLoader, the worker's batches."""
        if torch.utils.data.get_worker_info() is None:
            return map(_whole, self.batches)
        return self._of_plain_worker()

    def _of_plain_worker(self) -> Iterator[Batch]:
        """Refuse only when a batch is taken: PyTorch does not pass on an error of ``__iter__``.

        Only worker 0, which makes the first batch, uses the flag: a worker of an iteration that was
        refused or left may still start while the next iteration reads.
        """
        is_first = torch.utils.data.get_worker_info().id == 0
        is_uncounted = bool(self._is_uncounted) or not self._is_uncounted.is_shared()
        if self._has_begun or (is_first and is_uncounted):
            raise UncountedError
        self._has_begun = True
        if is_first:
            self._is_uncounted.fill_(True)
        yield from map(_whole, self._of_worker())

    def _of_worker(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        share_cores(worker.num_workers)
        self._batches.begin()
        first = self._batches.batches + worker.id
        return self._batches.read(range(first, len(self), worker.num_workers))

    def loader(self, num_workers: int = 0, **options: Any) -> BatchLoader:
        """Make a DataLoader that counts delivered batches, to resume with any number of workers.

        Args:
            num_workers: Processes that read and decode; 0 for threads of this process, which is
                enough unless ``transforms`` has functions in Python that take long.
            options: Other options of DataLoader, such as ``pin_memory`` and ``prefetch_factor``.

        Raises:
            ConfigError: ``config.invalid_value``: ``persistent_workers`` or ``in_order=False``,
                whose batches this process cannot count; or ``batch_size``.
        """
        return BatchLoader(self, num_workers=num_workers, **options)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, unless the epoch has begun.

        A state that was taken after the last batch of an epoch begins with the next epoch: go on
        with the epochs from ``dataset.batches.epoch``.

        Raises:
            ConfigError: ``config.invalid_value``: no whole number of at least 0; or an epoch before
                the epoch of the loaded state.
        """
        epoch = whole("epoch", epoch, 0)
        if epoch < self._resumed_epoch:
            message = f"epoch {epoch} was over: the state begins with epoch {self._resumed_epoch}"
            raise invalid(message, "epoch", "go on with the epochs from dataset.batches.epoch")
        self._is_uncounted.fill_(False)
        if epoch != self._batches.epoch:
            self._batches.go_to(epoch, 0)

    def state_dict(self, unfinished: int = 0) -> dict[str, Any]:
        """Return the state of the loader: see `larder.readers.loader.Loader.state_dict`.

        Raises:
            ConfigError: ``config.invalid_value``: workers of a plain DataLoader read the epoch.
        """
        return self.batches.state_dict(unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the last delivered batch: see `larder.readers.loader.Loader`."""
        self._batches.load_state_dict(state)
        self._is_uncounted.fill_(False)
        self._resumed_epoch = self._batches.epoch


class _WholeBatch(dict[str, Any]):
    """A batch that `default_collate` refuses to put into another batch."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copy as a dictionary, which training gets: `default_convert` and workers copy."""
        return dict, (dict(self),)


class _WholeTuple(tuple[Any, ...]):
    """A tuple of ``collate`` that `default_collate` refuses; `default_convert` makes a list."""

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)


_WHOLE: Final[dict[type, Callable[[Any], Any]]] = {dict: _WholeBatch, tuple: _WholeTuple}


def _whole(batch: Any) -> Any:
    kind = _WHOLE.get(type(batch))
    return batch if kind is None else kind(batch)


def _unwrapped(collate: Callable[[Any], Any], batch: Any) -> Any:
    return collate(copy(batch) if type(batch) in _WHOLE.values() else batch)


def _refuse_batches(batches: Any, **options: Any) -> Any:
    raise RebatchedError


for _kind in _WHOLE.values():
    torch.utils.data._utils.collate.default_collate_fn_map[_kind] = _refuse_batches


class BatchLoader(torch.utils.data.DataLoader[Batch]):
    """A DataLoader over a `BatchDataset` with the state and the epochs of a loader.

    Every iteration is an epoch of the loader. Arrays are tensors, lists remain lists.
    """

    dataset: BatchDataset

    def __init__(self, dataset: BatchDataset, **options: Any) -> None:
        for option, only, message in _FIXED:
            if options.pop(option, only) != only:
                raise invalid(message, option, "leave it out, or use torch's DataLoader")
        collate = options.pop("collate_fn", None) or torch.utils.data.default_convert
        if options.get("num_workers"):
            dataset, collate = _Reporting(dataset.batches), partial(_collated, collate)
        else:
            collate = partial(_unwrapped, collate)
        super().__init__(dataset, batch_size=None, collate_fn=collate, **options)

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        return self._counted() if self.num_workers else super().__iter__()

    def _counted(self) -> Iterator[Batch]:
        """Yield the batches that workers make, counted as `Loader.__iter__` counts its own."""
        batches = self.dataset.batches
        iteration = batches.begin()
        for number, (batch, failures) in enumerate(super().__iter__(), batches.batches + 1):
            batches.check(iteration)
            batches.batches = number
            batches.skipped.add_counted(failures.shown, failures.count)
            yield batch
        batches.check(iteration)
        batches.end()

    def state_dict(self, unfinished: int = 0) -> dict[str, Any]:
        return self.dataset.state_dict(unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the last delivered batch, with any number of workers and ranks."""
        self.dataset.load_state_dict(state)


class _Reporting(BatchDataset):
    """Yields, in workers, each batch with the samples skipped since the batch before."""

    def __iter__(self) -> Iterator[Any]:
        skipped = self._batches.skipped
        count, shown = skipped.count, len(skipped.shown)
        for batch in self._of_worker():
            more = Failures(skipped.count - count, skipped.shown[shown:])
            count, shown = count + more.count, shown + len(more.shown)
            yield batch, more


def _collated(collate: Callable[[Batch], Any], pair: tuple[Batch, Failures]) -> Any:
    batch, failures = pair
    return collate(batch), failures


def pinning() -> Callable[[Any], Any]:
    """Return a function that copies the arrays of a batch to pinned memory, without the lock.

    The memory is PyTorch's: only PyTorch knows when a GPU has read it and it can be used again.
    """
    if not torch.cuda.is_available():
        raise invalid("PyTorch has no GPU on this machine", "pin", "leave it out")
    return _pinned


def _pinned(batch: Any) -> Any:
    tensors = torch.utils.data.default_convert(batch)
    return torch.utils.data._utils.pin_memory.pin_memory(tensors)


class SampleDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """The samples of a split by number, each a dictionary of the values that it has.

    DataLoader reads a batch at once, with ``__getitems__``. The dataset can be pickled for workers
    of any kind.
    """

    def __init__(self, source: BatchSource, samples: int, decode: Decode | None = None) -> None:
        self._source = source
        self._samples = samples
        self._decode = decode

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Any:
        """Read one sample: ``key``, ``label`` and its parts, decoded on request.

        A slice, or a list of numbers, gives a list of samples. Negative numbers count from the end.

        Raises:
            IndexError: The sample does not exist.
            TypeError: A number is not an integer.
            LarderError: The sample cannot be read or decoded.
        """
        numbers, is_one = numbers_of(index, len(self), "sample")
        samples = self.__getitems__(numbers)
        return samples[0] if is_one else samples

    def __getitems__(self, numbers: Sequence[int] | Array) -> list[dict[str, Any]]:
        """Read several samples, in the order of their numbers, as `__getitem__` gives them."""
        (read,) = self._source.read([checked_numbers(numbers, len(self), "sample")])
        batch = read(np.empty)
        if worker := torch.utils.data.get_worker_info():
            share_cores(worker.num_workers)
        if self._decode is not None:
            batch = self._decode(batch)
        return rows_of(batch)
