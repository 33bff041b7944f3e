"""TensorFlow: the elements of a tf.data.Dataset to cache, and a tf.data.Dataset of a cache."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from operator import index
from typing import Any

import tensorflow as tf

from larder.datalayer.elements import (
    Leaf,
    Shape,
    as_array,
    assembled,
    flattened,
    numpy_dtype,
    refused,
)
from larder.datalayer.loader import LayerLoader
from larder.datalayer.schedule import LayerDivision
from larder.errors import FatalError

_FUNCTION = "the decorated function"


class TensorSource:
    """A tf.data.Dataset, whose element_spec gives the leaves."""

    kind = "tensorflow"

    def __init__(self, dataset: Any) -> None:
        count = int(dataset.cardinality())
        if count == tf.data.INFINITE_CARDINALITY:
            message = "the dataset does not end: it repeats"
            raise FatalError("run.endless", message, where=_FUNCTION, hint="leave out repeat()")
        self.leaves = tuple(_leaf(*pair) for pair in flattened(dataset.element_spec))
        if any(leaf.shape is None for leaf in self.leaves):
            for first in dataset.take(1).as_numpy_iterator():
                self.leaves = tuple(map(_ranked, self.leaves, flattened(first)))
        element_bytes = sum(map(_bytes, self.leaves))
        self.need_bytes = max(0, count) * element_bytes
        self.is_stacked = all(map(_is_fixed, self.leaves))
        self._rows = max(1, min(1_024, (4 << 20) // max(1, element_bytes)))
        self._dataset = dataset
        if any(type(each).__name__.endswith("BatchDataset") for each in _inputs(dataset)):
            message = (
                "a batch() stands inside: the cache has batches of this size, for all who read it"
            )
            logging.getLogger("larder").warning("%s: %s; batch what it returns", _FUNCTION, message)

    def __iter__(self) -> Iterator[Any]:
        dataset = self._dataset.batch(self._rows) if self.is_stacked else self._dataset
        return iter(dataset.as_numpy_iterator())


def _leaf(path: tuple[str, ...], spec: Any) -> Leaf:
    name = "".join(path) or "an element"
    if not isinstance(spec, tf.TensorSpec):
        hint = "make tensors of it with map(), such as with to_tensor()"
        message = f"{name} is a {type(spec).__name__.removesuffix('Spec')}"
        raise FatalError("cache.schema", message, where=_FUNCTION, hint=hint)
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    dtype = "bytes" if spec.dtype == tf.string else spec.dtype.name
    leaf = Leaf(path, dtype, shape, shape or ())
    try:
        leaf.check()
    except ValueError:
        raise refused(f"{name} has the type {dtype}, which a cache cannot hold") from None
    return leaf


def _ranked(leaf: Leaf, first: tuple[tuple[str, ...], Any]) -> Leaf:
    """Give the leaf the number of dimensions of the first element."""
    return replace(leaf, stored=as_array(first[1], leaf.name).shape)


def _is_fixed(leaf: Leaf) -> bool:
    """Whether all values have the same size in bytes."""
    return leaf.dtype != "bytes" and leaf.shape is not None and None not in leaf.shape


def _bytes(leaf: Leaf) -> int:
    """Return the size of a value in bytes; 0 if sizes differ."""
    sizes = [size for size in leaf.shape or () if size is not None]
    return math.prod(sizes) * int(numpy_dtype(leaf.dtype).itemsize) if _is_fixed(leaf) else 0


def _inputs(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and its inputs, except the inputs of an unbatch."""
    yield dataset
    if "Unbatch" not in type(dataset).__name__:
        for each in getattr(dataset, "_inputs", list)():
            yield from _inputs(each)


def dataset_of(
    loader: LayerLoader, leaves: Sequence[Leaf], offset: int, division: LayerDivision
) -> Any:
    """Return the single elements of a loader's rank as a tf.data.Dataset with their element_spec.

    Args:
        loader: Gives the values of the leaves for a block of elements at once.
        leaves: The leaves of an element.
        offset: Number of the rank's elements to skip.
        division: Division of the loader.
    """
    count = division.elements_of(loader.rank)
    position = divmod(offset, max(1, count))
    paths = [leaf.path for leaf in leaves]
    # TensorFlow 2.21 ends the process when it unbatches arrays that have no elements.
    stacked = not any({None, 0} & {*leaf.stored} for leaf in leaves)
    passes, block = _Passes(position), loader.batch_size // loader.world
    specs = [_spec(leaf, rows=stacked) for leaf in leaves]

    def read(size: int) -> Any:
        blocks = loader.in_batches(size * loader.world)

        def elements() -> Iterator[Any]:
            for columns in passes(copy(blocks)):
                if stacked:
                    yield assembled(paths, columns)
                else:
                    yield from (assembled(paths, row) for row in zip(*columns, strict=True))

        return tf.data.Dataset.from_generator(elements, output_signature=assembled(paths, specs))

    options = tf.data.Options()  # a strategy would divide the rank's part once more
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF

    def finished(dataset: Any, count: int) -> Any:
        if not position[1]:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
        return dataset.with_options(options)

    def batch(batch_size: Any, drop_remainder: bool = False, *_: Any, **__: Any) -> Any:
        """Batch like ``Dataset.batch``, but without unbatching the blocks that were read."""
        size = index(batch_size)
        if size <= 0:
            return type(dataset).batch(dataset, size)  # TensorFlow's own error
        batches = count if drop_remainder else count + size - 1
        blocks = read(block // size * size or block)  # whole batches are not copied again
        return finished(blocks.rebatch(size, drop_remainder), batches // size)

    dataset = finished(read(block).unbatch() if stacked else read(block), count)
    if stacked:
        dataset.batch = batch
    return dataset


def _spec(leaf: Leaf, *, rows: bool) -> Any:
    dtype = tf.string if leaf.dtype == "bytes" else tf.as_dtype(leaf.dtype)
    shape: Shape | None = leaf.shape
    return tf.TensorSpec((None, *shape) if rows and shape is not None else shape, dtype)


class _Passes:
    """Epochs of a dataset: each iteration is one epoch, from its first element on.

    An epoch that ended early is begun again. Several iterations may run at once, each with its own
    loader.
    """

    def __init__(self, position: tuple[int, int]) -> None:
        self._position = position

    def __call__(self, loader: LayerLoader) -> Iterator[Sequence[Any]]:
        epoch, elements = self._position
        batches, skipped = divmod(elements, loader.batch_size // loader.world)
        loader.go_to(epoch, batches)
        for columns in loader:
            yield [column[skipped:] for column in columns]
            skipped = 0
        self._position = max(self._position, (epoch + 1, 0))
