"""TensorFlow: the elements of a tf.data.Dataset to cache, and a tf.data.Dataset of a cache."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import index
from typing import Any

import tensorflow as tf

from larder.datalayer.elements import (
    FunctionResult,
    Leaf,
    Shape,
    as_array,
    assembled,
    flattened,
    numpy_dtype,
    refused,
)
from larder.errors import FatalError
from larder.readers.loader import Loader
from larder.readers.tf import undivided

_FUNCTION = "the decorated function"


def tensor_source(dataset: Any) -> FunctionResult:
    count = int(dataset.cardinality())
    if count == tf.data.INFINITE_CARDINALITY:
        message = "the dataset does not end: it repeats"
        raise FatalError("run.endless", message, where=_FUNCTION, hint="leave out repeat()")
    leaves = tuple(_leaf(*pair) for pair in flattened(dataset.element_spec))
    if any(leaf.shape is None for leaf in leaves):
        for first in dataset.take(1).as_numpy_iterator():
            leaves = tuple(map(_ranked, leaves, flattened(first)))
    if any(type(each).__name__.endswith("BatchDataset") for each in _inputs(dataset)):
        message = "a batch() stands inside: the cache has batches of this size, for all who read it"
        logging.getLogger("larder").warning("%s: %s; batch what it returns", _FUNCTION, message)
    element_bytes = sum(map(_bytes, leaves))
    is_stacked = all(map(_is_fixed, leaves))
    rows = max(1, min(1_024, (4 << 20) // max(1, element_bytes)))
    read = dataset.batch(rows) if is_stacked else dataset
    need_bytes = max(0, count) * element_bytes
    return FunctionResult("tensorflow", leaves, read.as_numpy_iterator, need_bytes, is_stacked)


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
    return leaf.dtype != "bytes" and leaf.shape is not None and None not in leaf.shape


def _bytes(leaf: Leaf) -> int:
    sizes = [size for size in leaf.shape or () if size is not None]
    return math.prod(sizes) * int(numpy_dtype(leaf.dtype).itemsize) if _is_fixed(leaf) else 0


def _inputs(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and its inputs, except the inputs of an unbatch."""
    yield dataset
    if "Unbatch" not in type(dataset).__name__:
        for each in getattr(dataset, "_inputs", list)():
            yield from _inputs(each)


def dataset_of(
    loader: Loader, leaves: Sequence[Leaf], block: int, loader_of: Callable[[int], Loader]
) -> Any:
    """Return the single elements of a rank as a tf.data.Dataset with their element_spec.

    Args:
        loader: The loader of single elements, at the first element to read.
        leaves: The leaves of an element.
        block: Number of elements to read at once.
        loader_of: Makes a loader of the values of the leaves for a number of elements at once.
    """
    count, position = len(loader), (loader.epoch, loader.batches)
    paths = [leaf.path for leaf in leaves]
    # TensorFlow 2.21 ends the process when it unbatches arrays that have no elements.
    stacked = not any({None, 0} & {*leaf.stored} for leaf in leaves)
    specs = [_spec(leaf, rows=stacked) for leaf in leaves]

    def read(size: int) -> Any:
        def elements() -> Iterator[Any]:
            """Yield an epoch, or its rest; several iterations may run at once."""
            nonlocal position
            (epoch, first), of_blocks = position, loader_of(size)
            batches, skipped = divmod(first, size)
            of_blocks.go_to(epoch, batches)
            for columns in of_blocks:
                rest = [column[skipped:] for column in columns]
                skipped = 0
                if stacked:
                    yield assembled(paths, rest)
                else:
                    yield from (assembled(paths, row) for row in zip(*rest, strict=True))
            position = max(position, (epoch + 1, 0))

        return tf.data.Dataset.from_generator(elements, output_signature=assembled(paths, specs))

    def finished(dataset: Any, count: int) -> Any:
        if not loader.batches:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
        return undivided(dataset)

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
