"""PyTorch: batches of a loader as an IterableDataset, and samples by number as a Dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch.utils.data

from larder.errors import Failures
from larder.readers.batches import Batch, rows_of, share_cores
from larder.readers.loader import Decode, Loader
from larder.readers.numbers import Array, checked_numbers, numbers_of
from larder.readers.schedule import invalid, whole
from larder.readers.sources import BatchSource

_FORMAT: Final = "larder-torch-worker-1"

_SIZED: Final = "a batch has the samples that batch_size of data.torch says"

_FIXED: Final = (
    ("persistent_workers", False, "workers cannot be kept from epoch to epoch"),
    ("in_order", True, "batches that come in another order cannot be counted"),
    ("batch_size", None, _SIZED),
)
"""Options of DataLoader that allow one value only."""


class BatchDataset(torch.utils.data.IterableDataset[Batch]):
    """The batches of one rank, for ``DataLoader(dataset, batch_size=None, num_workers=N)``.

    Worker w of W makes the batches w, w + W, ...: DataLoader takes a batch of each worker in turn.
    So training gets the batches in the loader's order, whatever the number of workers. The
    dataset can be pickled for workers of any kind, also after batches were read.

    torchdata's StatefulDataLoader keeps the state of its workers, and resumes with as many workers.
    The state of `loader` suits any number of workers.

    Attributes:
        batches: The loader of the batches.
    """

    def __init__(self, batches: Loader) -> None:
        super().__init__()
        self.batches = batches
        self._next: int | None = None
        self._loaded: int | None = None
        self._resumed_epoch = 0
        self._place = torch.zeros(2, dtype=torch.int64)
        """Epoch and first batch of the iteration, shared with the workers."""

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of an epoch; in a worker of a DataLoader, the worker's batches."""
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return iter(self.batches)
        share_cores(worker.num_workers)
        epoch, first = self._place.tolist()
        self.batches.go_to(epoch, first)
        self._next = first + worker.id if self._loaded is None else self._loaded
        self._loaded = None
        return self._of_worker(worker.num_workers)

    def _of_worker(self, workers: int) -> Iterator[Batch]:
        numbers = range(self._next or 0, len(self), workers)
        for number, batch in zip(numbers, self.batches.read(numbers), strict=True):
            self._next = number + workers
            yield batch

    def begin(self, iterator: Any, previous: Any) -> None:
        """Begin an iteration by workers, in the training process, for a DataLoader's iterator.

        ``previous`` is the iterator before, if any. torchdata makes an iterator for a state at the
        end of an epoch, and drops it for the next epoch without taking a batch: the ended epoch is
        counted here.
        """
        if getattr(previous, "_finished", False) and not previous._is_counted:
            self.batches.go_to(int(self._place[0]) + 1, 0)
        iterator._is_counted = iterator._has_batch = False
        iterator._iteration = self.batches.begin()
        self._place.share_memory_()[:] = torch.tensor([self.batches.epoch, self.batches.batches])

    def follow(self, iterator: Any) -> None:
        """Count an iterator's batches in the training process, after each batch and at the end."""
        self.batches.check(iterator._iteration)
        epoch, first = self._place.tolist()
        if not iterator._has_batch:  # torchdata resumes in workers, and counts from its state
            first_batch = first + max(0, iterator._num_yielded - 1)
            iterator._iteration = self.batches.go_to(epoch, first_batch)
            iterator._has_batch = True
        self.batches.epoch, self.batches.batches = epoch, first + iterator._num_yielded

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
        if epoch != self.batches.epoch:
            self.batches.go_to(epoch, 0)

    def state_dict(self, unfinished: int = 0) -> dict[str, Any]:
        """Return the state of the loader; in a worker of a DataLoader, the worker's state."""
        state = self.batches.state_dict(unfinished)
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return state
        of = {"worker": worker.id, "workers": worker.num_workers, "next": self._next}
        return {"format": _FORMAT, "loader": state, **of}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the batches that were delivered when the state was taken.

        Raises:
            ConfigError: ``config.invalid_value``: the state of another worker, or another number of
                workers; or as in `larder.readers.loader.Loader.load_state_dict`.
        """
        worker = torch.utils.data.get_worker_info()
        of_loader, following = state, None
        if worker is not None and state.get("format") == _FORMAT:
            if (state["worker"], state["workers"]) != (worker.id, worker.num_workers):
                message = f"the state is that of worker {state['worker']} of {state['workers']}"
                hint = "resume with as many workers, or use dataset.loader(), which needs no more"
                raise invalid(message, f"worker {worker.id} of {worker.num_workers}", hint)
            of_loader, following = state["loader"], state["next"]
        self.batches.load_state_dict(of_loader)
        self._place[:] = torch.tensor([self.batches.epoch, self.batches.batches])
        self._loaded, self._resumed_epoch = following, self.batches.epoch


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
        super().__init__(dataset, batch_size=None, collate_fn=collate, **options)

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        return self._received() if self.num_workers else super().__iter__()

    def _received(self) -> Iterator[Batch]:
        skipped = self.dataset.batches.skipped
        for batch, failures in super().__iter__():
            skipped.add_counted(failures.shown, failures.count)
            yield batch

    def state_dict(self, unfinished: int = 0) -> dict[str, Any]:
        """Return the state of the loader: see `larder.readers.loader.Loader.state_dict`."""
        return self.dataset.batches.state_dict(unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the last delivered batch, with any number of workers and ranks.

        Raises:
            ConfigError: As in `larder.readers.loader.Loader.load_state_dict`.
        """
        self.dataset.load_state_dict(state)


class _Reporting(BatchDataset):
    """Yields, in workers, each batch with the samples skipped since the batch before."""

    def __iter__(self) -> Iterator[Any]:
        skipped = self.batches.skipped
        count, shown = skipped.count, len(skipped.shown)
        for batch in super().__iter__():
            more = Failures(skipped.count - count, skipped.shown[shown:])
            count, shown = count + more.count, shown + len(more.shown)
            yield batch, more


def _collated(collate: Callable[[Batch], Any], pair: tuple[Batch, Failures]) -> Any:
    batch, failures = pair
    return collate(batch), failures


def pinning() -> Callable[[Any], Any]:
    """Return a function that copies the arrays of a batch to pinned memory, without the lock.

    The memory is PyTorch's: only PyTorch knows when a GPU has read it and it can be used again.

    Raises:
        ConfigError: ``config.invalid_value``: there is no GPU.
    """
    if not torch.cuda.is_available():
        raise invalid("PyTorch has no GPU on this machine", "pin", "leave it out")
    return _pinned


def _pinned(batch: Any) -> Any:
    tensors = torch.utils.data.default_convert(batch)
    return torch.utils.data._utils.pin_memory.pin_memory(tensors)


def _follow() -> None:
    """Have the iterators of DataLoader, also torchdata's, tell the dataset what they deliver.

    PyTorch tells a dataset neither that an iteration by workers begins nor how far it came, so
    workers could not know the epoch.
    """
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    make, reset, advance = kind.__init__, kind._reset, kind.__next__

    def is_followed(iterator: Any) -> bool:
        return iterator._num_workers > 0 and isinstance(iterator._dataset, BatchDataset)

    def making(iterator: Any, loader: Any) -> None:
        dataset = loader.dataset
        if type(dataset).__name__ == "IterableDatasetShard":  # made by Accelerate for several ranks
            dataset = dataset.dataset
        if isinstance(dataset, BatchDataset) and loader._auto_collation:
            hint = "use dataset.loader(), or give DataLoader batch_size=None"
            raise invalid(_SIZED, "batch_size", hint)
        make(iterator, loader)
        if is_followed(iterator):
            iterator._shutdown = True  # no workers to shut down yet if `begin` refuses
            iterator._dataset.begin(iterator, loader._iterator)

    def resetting(iterator: Any, loader: Any, first_iter: bool = False) -> None:
        reset(iterator, loader, first_iter)
        if is_followed(iterator) and not first_iter:
            iterator._dataset.begin(iterator, iterator)

    def advancing(iterator: Any) -> Any:
        if not is_followed(iterator):
            return advance(iterator)
        try:
            batch = advance(iterator)
        except StopIteration:
            iterator._dataset.follow(iterator)
            iterator._dataset.batches.end()
            iterator._is_counted = True
            raise
        iterator._dataset.follow(iterator)
        return batch

    kind.__init__, kind._reset, kind.__next__ = making, resetting, advancing


_follow()


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
