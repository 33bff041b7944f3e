"""Decorators for training code: cache the elements that a function returns for all ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, get_args

from larder.datalayer.cache_place import place_of
from larder.datalayer.element_loader import (
    ElementLoader,
    ElementSource,
    LayerSchedule,
    OnceShuffled,
    block_elements,
)
from larder.datalayer.elements import (
    FunctionResult,
    batch_of,
    columns_of,
    elements_of,
    leaves_of,
    stored_schema,
)
from larder.datalayer.function import digests
from larder.datalayer.layer_cache import LayerCache
from larder.datalayer.layer_files import LayerFiles
from larder.datalayer.stored import Caching, OnChange
from larder.packages import require_module
from larder.readers.cache_reader import CacheReader
from larder.readers.determined import Trial, this_trial
from larder.readers.epoch_order import ChosenSamples
from larder.readers.launcher import Rank, rank_of
from larder.readers.loader import Loader
from larder.readers.options import Shuffle
from larder.readers.schedule import batch_size_of, choice, invalid, size_bytes, whole
from larder.units import suggest

if TYPE_CHECKING:
    from typing import Unpack

Decorated = Callable[..., Any]

_MEMORY_BYTES: Final = 512 * 10**6
_FILE_BYTES: Final = 4 * 10**9
_FUNCTION: Final = "the decorated function"
_RESULTS: Final = "return a tf.data.Dataset, or an iterator of arrays, tuples or dictionaries"


class Options(TypedDict, total=False):
    """Options of both decorators.

    Attributes:
        storage: URL or path of the storage. The default is ``$LARDER_CACHE``, then
            ``data.data_layer`` or ``data_layer`` of the experiment's config, then
            ``~/data/determined``.
        cache_dir: Directory for copies of a cache in a bucket, as for `larder.open`.
        cache_bytes: Most bytes of all copies, such as ``"200 GB"``. The default is
            ``$LARDER_CACHE_BYTES``, or the free disk. The copies that were opened longest ago are
            removed first; an open copy is never removed.
        rank: Number of this process, from 0. The launcher gives the default of rank and world.
        world: Number of processes.
        seed: Seed of the shuffle; by default the seed of Determined's trial, or 0.
        batch_size: Elements of a batch over all ranks; by default the experiment's
            ``global_batch_size``. A tf.data.Dataset has no batches, and needs the size only to
            resume a trial.
        batch_size_per_rank: Elements of a rank's part of a batch, instead of ``batch_size``.
        on_change: Reaction to a changed function. ``warn`` logs the change and reads the cache,
            unless the elements differ in structure, type or shape; ``error`` refuses; ``rebuild``
            replaces the cache.
        max_bytes: Most bytes of the cache, such as ``"20 GB"``; by default the free disk, less 5
            percent.
        max_records: Most elements.
        file_bytes: Bytes of elements after which a build begins the next file, such as
            ``"500 MB"``; by default 4 GB. Files of a copied cache are fetched one by one.
    """

    storage: str | Path | None
    cache_dir: str | Path | None
    cache_bytes: int | str | None
    rank: int | None
    world: int | None
    seed: int | None
    batch_size: int | None
    batch_size_per_rank: int | None
    on_change: OnChange
    max_bytes: int | str | None
    max_records: int | None
    file_bytes: int | str


def cache_train_dataset(
    dataset_id: str,
    dataset_version: str,
    shuffle: bool = False,
    skip_shuffle_end_of_epoch: bool = False,
    *,
    skip_shuffle_at_epoch_end: bool = False,
    offset: int | None = None,
    state: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Callable[[Callable[..., Any]], Decorated]:
    """Cache the training data that a function returns, and read each rank's part of it.

    The function returns a tf.data.Dataset, or an iterator of arrays, or of tuples or dictionaries
    of arrays. Larder calls the function if no cache exists. Arguments of the decorated function are
    passed on; a changed argument is reported like a changed function.

    The decorated function returns a tf.data.Dataset with the same element_spec, to be batched by
    the caller. For other results it returns a `larder.readers.loader.Loader` of batches, or of
    single elements if no batch size is known. Every iteration is an epoch. Rank r of w has every
    w-th element from the r-th on; elements that the ranks cannot share evenly are left out.

    Args:
        dataset_id: Name of the dataset, and of its folder in the storage.
        dataset_version: Name of the dataset's version.
        shuffle: Shuffle all elements, in another order for each epoch.
        skip_shuffle_end_of_epoch: Keep the order of the first epoch.
        skip_shuffle_at_epoch_end: Alias of ``skip_shuffle_end_of_epoch``, as in the data layer.
        offset: Elements that the rank has trained with: batches times their size. Determined's
            trial gives the default.
        state: A loader's ``state_dict()``, instead of ``offset``. The number of ranks may differ.
        options: See `Options`.

    Raises:
        ConfigError: ``config.invalid_value``: an unusable name, number or result;
            ``cache.changed``; ``config.path``: the storage cannot be written, or read.
        FatalError: ``run.endless``: the dataset does not end, or exceeds a limit;
            ``cache.schema``: a cache cannot hold the elements, or the cache holds elements of
            another structure, type or shape; ``cache.format``: a cache of YogaDL.
        DamageError: The cache is damaged.
        StoreError: ``store.full``; or the store cannot be reached, or refuses.
    """
    if offset is not None and state is not None:
        raise invalid("give one of offset and state", "offset")
    use = _Use(
        "train",
        shuffle,
        skip_shuffle_end_of_epoch or skip_shuffle_at_epoch_end,
        None if offset is None else whole("offset", offset, 0),
        state,
    )
    return _decorator(dataset_id, dataset_version, use, options)


def cache_validation_dataset(
    dataset_id: str, dataset_version: str, shuffle: bool = False, **options: Unpack[Options]
) -> Callable[[Callable[..., Any]], Decorated]:
    """Cache validation data, like `cache_train_dataset`; both may have the same id and version.

    All elements are used; some ranks may have one more than others. Each iteration begins with the
    first element and keeps the order.
    """
    return _decorator(dataset_id, dataset_version, _Use("val", shuffle, True, 0, None), options)


@dataclass(frozen=True, slots=True)
class _Use:
    """The purpose of reading a dataset, and the element to begin with."""

    suffix: str
    shuffle: bool
    once: bool
    offset: int | None
    state: Mapping[str, Any] | None


def _decorator(
    dataset_id: str, version: str, use: _Use, options: Options
) -> Callable[[Callable[..., Any]], Decorated]:
    known = Options.__annotations__
    for unknown in options.keys() - known.keys():
        raise invalid("there is no such option", unknown, suggest(unknown, known, "options"))
    where = options.get("storage"), options.get("cache_dir"), options.get("cache_bytes")
    place = place_of(dataset_id, version, f"_{use.suffix}", *where)
    on_change = options.get("on_change", "warn")
    choice("on_change", on_change, get_args(OnChange))
    max_bytes, max_records = options.get("max_bytes"), options.get("max_records")
    most_bytes = None if max_bytes is None else size_bytes(max_bytes, "max_bytes")
    most = None if max_records is None else whole("max_records", max_records, 1)
    file_bytes = whole(
        "file_bytes", size_bytes(options.get("file_bytes", _FILE_BYTES), "file_bytes"), 1
    )

    def decorate(function: Callable[..., Any]) -> Decorated:
        @wraps(function)
        def decorated(*arguments: Any, **named: Any) -> Any:
            check_eager()
            caching = Caching(
                place,
                place.store(),
                digests(function, arguments, named),
                lambda: function_result(function(*arguments, **named)),
                on_change,
                most_bytes,
                most,
                file_bytes,
            )
            return _read(caching, use, options)

        return decorated

    return decorate


def _read(caching: Caching, use: _Use, options: Options) -> Any:
    # Check all options before a build, which may take long.
    name, trial = caching.place.name, this_trial()
    rank = rank_of(options.get("rank"), options.get("world"))
    size = _batch_size(options, rank.world, trial)
    offset = _offset(name, use, size and size // rank.world, trial)
    seed = options.get("seed")
    seed = whole("seed", (trial.seed if trial else 0) if seed is None else seed, 0)
    return caching.open(_RankReading(use, rank, size, offset, seed).begin)


@dataclass(frozen=True, slots=True)
class _RankReading:
    """A rank's reading of a dataset, in batches of ``size`` over all ranks; None for elements."""

    use: _Use
    rank: Rank
    size: int | None
    offset: int
    seed: int

    def begin(self, cache: LayerCache, files: LayerFiles) -> Any:
        """Return the rank's part of the dataset, after opening the file with its first element."""
        world = self.rank.world
        if self.use.suffix == "train" and cache.records < world:
            message = f"{cache.records} elements cannot be shared by {world} ranks"
            raise invalid(message, cache.name, "train with fewer ranks")
        counts = [file.records for file in cache.files]
        records = CacheReader(files, schema=stored_schema(cache.leaves), counts=counts)
        loader_of = partial(self._loader, cache, records)
        if cache.kind == "tensorflow":
            return self._tensorflow(cache, files, loader_of)
        if self.size is None:
            loader = loader_of(1, elements_of, partial(ElementLoader, block_elements(cache)))
        else:
            loader = loader_of(self.size // world, batch_of)
        self._go_on(loader, files)
        return loader

    def _tensorflow(
        self, cache: LayerCache, files: LayerFiles, loader_of: Callable[..., Loader]
    ) -> Any:
        if self.use.state is not None:
            message = "a tf.data.Dataset has no state: it does not know what was trained with"
            raise invalid(message, "state", "give offset, how many elements the rank has had")
        require_module("tensorflow", "tensorflow")
        from larder.datalayer.tensor_source import dataset_of

        elements = loader_of(1, elements_of)
        self._go_on(elements, files)
        blocks = partial(loader_of, form=columns_of)
        return dataset_of(elements, cache.leaves, block_elements(cache), blocks)

    def _loader(
        self,
        cache: LayerCache,
        records: CacheReader,
        per_rank: int,
        form: Callable[..., Any],
        kind: Callable[..., Loader] = Loader,
    ) -> Loader:
        rank, world, said_by = self.rank
        return kind(
            ElementSource(records, partial(form, cache.leaves)),
            self._schedule(cache, per_rank * world),
            None,
            rank=rank,
            world=world,
            decode=None,
            memory_bytes=_MEMORY_BYTES,
            on_error="raise",
            is_ranked=bool(said_by),
        )

    def _schedule(self, cache: LayerCache, batch_size: int) -> LayerSchedule:
        dataset, _, split = cache.name.partition("/")
        kind = OnceShuffled if self.use.once else LayerSchedule
        return kind(
            dataset=dataset,
            version=cache.digest[:32],
            split=split,
            choice=ChosenSamples(cache.records),
            shards=1,
            seed=self.seed,
            shuffle=Shuffle("full" if self.use.shuffle else "sequential"),
            batch_size=batch_size,
            even="drop" if self.use.suffix == "train" else "pad",
        )

    def _go_on(self, loader: Loader, files: LayerFiles) -> None:
        """Go to the state or the offset, and open the files from there on."""
        per_rank = loader.batch_size // loader.world
        if self.use.state is not None:
            loader.load_state_dict(self.use.state)
        elif self.offset % per_rank:
            message = f"{self.offset} is no whole number of batches of {per_rank}"
            raise invalid(message, "offset", "count whole batches")
        else:
            loader.skip(self.offset // per_rank)
        order = loader.parts.schedule.order(loader.epoch, loader.parts.index)
        files.open_ahead(order, loader.batches * loader.batch_size)


def _batch_size(options: Options, world: int, trial: Trial | None) -> int | None:
    """Return the batch size of all ranks together; None if neither options nor trial give it."""
    of_all, per_rank = options.get("batch_size"), options.get("batch_size_per_rank")
    if of_all is None and per_rank is None:
        if trial is None or trial.batch_size is None:
            return None
        per_rank = max(1, trial.batch_size // world)  # as Determined divides it
    return batch_size_of(of_all, per_rank, world)


_trained: dict[str, str] = {}
"""The training cache by trial: Determined's count of batches is valid for this cache only."""


def _offset(name: str, use: _Use, per_rank: int | None, trial: Trial | None) -> int:
    if use.offset is not None or use.state is not None:
        return use.offset or 0
    if trial is None:
        return 0
    if _trained.setdefault(f"{os.getpid()} {trial.id}", name) != name:
        message = "the trial trains with another cache, of which Determined counts the batches"
        hint = "decorate one function for training, or give offset"
        raise invalid(message, name, hint)
    if trial.batches and per_rank is None:
        message = f"the trial stopped after {trial.batches} batches of an unknown size"
        raise invalid(
            message, "batch_size", "give batch_size, or hyperparameters.global_batch_size"
        )
    return trial.batches * (per_rank or 0)


def function_result(result: Any) -> FunctionResult:
    """Return a function's result as elements; raise ``config.invalid_value`` if unusable."""
    if result is None:
        raise invalid("it returned None", _FUNCTION, _RESULTS)
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow and isinstance(result, tensorflow.data.Dataset):
        from larder.datalayer.tensor_source import tensor_source

        return tensor_source(result)
    try:
        if isinstance(result, str | bytes | dict):
            raise TypeError
        elements = iter(result)
    except TypeError:
        message = f"it returned a {type(result).__name__}, which is no iterator of elements"
        raise invalid(message, _FUNCTION, _RESULTS) from None
    first = next(elements, elements)
    if first is elements:
        raise invalid("it returned a dataset without elements", _FUNCTION, _RESULTS)
    return FunctionResult("arrays", leaves_of(first), chain([first], elements).__iter__)


def check_eager() -> None:
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow and not tensorflow.executing_eagerly():
        message = "TensorFlow is in graph mode, as in the input_fn of an Estimator"
        hint = "call it in eager code; train with Keras or a loop of your own instead"
        raise invalid(message, _FUNCTION, hint)
