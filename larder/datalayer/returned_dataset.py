"""The result of a decorated function: an iterator of elements, or a tf.data.Dataset."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

from larder.datalayer.elements import FunctionResult, leaves_of
from larder.errors import ConfigError


def function_result(result: Any) -> FunctionResult:
    """Return a function's result as elements; raise ``config.invalid_value`` if unusable."""
    if result is None:
        raise _refused("it returned None")
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
        raise _refused(message) from None
    first = next(elements, elements)
    if first is elements:
        raise _refused("it returned a dataset without elements")
    return FunctionResult("arrays", leaves_of(first), chain([first], elements).__iter__)


def check_eager() -> None:
    """Refuse graph mode, as in the ``input_fn`` of an Estimator."""
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow and not tensorflow.executing_eagerly():
        message = "TensorFlow is in graph mode, as in the input_fn of an Estimator"
        hint = "call it in eager code; train with Keras or a loop of your own instead"
        raise ConfigError(
            "config.invalid_value", message, where="the decorated function", hint=hint
        )


def _refused(message: str) -> ConfigError:
    hint = "return a tf.data.Dataset, or an iterator of arrays, tuples or dictionaries"
    return ConfigError("config.invalid_value", message, where="the decorated function", hint=hint)
