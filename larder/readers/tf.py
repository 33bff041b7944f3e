"""TensorFlow: the batches of a loader as a tf.data.Dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import tensorflow as tf

from larder.errors import ConfigError
from larder.readers.batch_decoding import Batch
from larder.readers.loader import Loader
from larder.readers.schedule import check_columns, invalid


def dataset(loader: Loader, columns: Sequence[str] | None = None) -> Any:
    """Make a ``tf.data.Dataset`` with one element for each batch of the rank.

    Its ``element_spec`` follows from the first batch. Arrays keep their dtype and the shape of a
    sample; the number of samples is open. Keys, and parts that are bytes, are strings, empty for
    samples without the part. Every iteration is an epoch of the loader. The loader counts a batch
    when TensorFlow takes it: somewhat early if the dataset prefetches.
    """
    if loader.parts.pin:
        raise invalid("PyTorch's memory is not for TensorFlow", "pin", "leave it out")
    if not len(loader):
        message = "there is no batch that element_spec could follow from"
        raise invalid(message, "batch_size", "use even='pad'")
    with closing(loader.read(range(1))) as batches:
        first = next(batches)
    if not isinstance(first, Mapping):
        raise invalid(f"it returned {type(first).__name__}", "collate", "return a dictionary")
    names = list(first) if columns is None else list(columns)
    check_columns(first, names)
    specs = {name: _spec(name, first[name]) for name in names}

    def element(batch: Batch) -> Any:
        if columns is None:
            _check_names(batch, specs)
        values = {name: _value(batch, name, specs[name]) for name in names}
        return values if columns is None else tuple(values.values())

    def elements() -> Iterator[Any]:
        return map(element, loader)

    signature = specs if columns is None else tuple(specs.values())
    batches = tf.data.Dataset.from_generator(elements, output_signature=signature)
    return batches if loader.world == 1 else undivided(batches)


def undivided(dataset: Any) -> Any:
    """Return the dataset of a rank as one that no strategy divides again."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def counted_dataset(loader: Loader, columns: Sequence[str] | None = None) -> Any:
    """Make a `dataset` of a new loader, with the number of batches of an epoch.

    All epochs have equally many batches. Keras asks for the number before the first epoch.
    """
    cardinality = tf.data.experimental.assert_cardinality(len(loader))
    return dataset(loader, columns).apply(cardinality)


def _check_names(batch: Batch, specs: dict[str, Any]) -> None:
    for name in batch:
        if name not in specs:
            message = f"a batch has values of {name!r}, the first one has none"
            hint = "name the columns that all samples have"
            raise ConfigError("config.invalid_value", message, where="columns", hint=hint)


def _spec(name: str, values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return tf.TensorSpec((None, *values.shape[1:]), tf.as_dtype(values.dtype))
    if all(_is_text(value) for value in values):
        return tf.TensorSpec((None,), tf.string)
    message = f"the values of {name!r} have no one shape and type"
    hint = "give decode=True with a size, a function in transforms, or columns without it"
    raise ConfigError("config.invalid_value", message, where="columns", hint=hint)


def _value(batch: Batch, name: str, spec: Any) -> Any:
    """Convert values to the form that TensorFlow takes for a tensor of this kind."""
    if spec.dtype == tf.string:
        size = len(next(iter(batch.values())))
        return np.array([_bytes(value) for value in batch.get(name, [None] * size)], object)
    check_columns(batch, [name])
    values = batch[name]
    if _spec(name, values).is_subtype_of(spec):
        return values
    form = "no one shape"
    if isinstance(values, np.ndarray):
        form = f"the shape {values.shape[1:]} of {values.dtype}"
    message = f"the values of {name!r} have {form}"
    hint = "the first batch has others: give decode=True with a size, or a function in transforms"
    raise ConfigError("config.invalid_value", message, where="columns", hint=hint)


def _is_text(value: Any) -> bool:
    """Whether a value is a key, or the bytes of a part, which are an array in a cache."""
    if isinstance(value, np.ndarray):
        return value.dtype == np.uint8 and value.ndim == 1
    return value is None or isinstance(value, str | bytes)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else b"" if value is None else bytes(value)
