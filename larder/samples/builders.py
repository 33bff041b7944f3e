"""User functions that make the records of a cache: ``cache.builder``."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from larder.config.shape import BuilderUse
from larder.errors import ConfigError
from larder.samples.decoders import function_of
from larder.samples.indexed import Sample

_WHERE: Final = "cache.builder"
_DIVIDED: Final = ("shard_index", "shards")


class Builder(NamedTuple):
    """A function that yields an element for each sample.

    Attributes:
        is_divided: Whether the function may be called for some of the samples alone, because it
            takes ``shard_index`` and ``shards``.
        digest: Digest of the source of the function's module.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    is_divided: bool
    digest: str = ""

    def elements(self, samples: Iterator[Sample], shard: tuple[int, int]) -> Iterator[Any]:
        """Iterate over the elements of one of several shards; raise any error of the function."""
        division = dict(zip(_DIVIDED, shard, strict=True)) if self.is_divided else {}
        result = self.function(samples, **self.inputs, **division)
        as_numpy = getattr(result, "as_numpy_iterator", None)  # a method of tf.data.Dataset
        return iter(as_numpy() if as_numpy else result)


def resolved_builder(use: BuilderUse) -> BuilderUse:
    """Return the builder's use with the digest of the module's source."""
    return replace(use, digest=builder_of(use).digest)


@cache
def builder_of(use: BuilderUse) -> Builder:
    function, inputs = function_of(_WHERE, use.use), json.loads(use.inputs)
    try:
        signature = inspect.signature(function)
        is_divided = set(_DIVIDED) <= signature.parameters.keys()
        signature.bind(iter(()), **inputs, **(dict.fromkeys(_DIVIDED, 1) if is_divided else {}))
    except (TypeError, ValueError) as error:
        message = f"{use.use} cannot be called: {error}"
        hint = "it is called with an iterator of samples, and with builder_inputs by name"
        raise ConfigError("config.invalid_value", message, where=_WHERE, hint=hint) from None
    try:
        source = Path(sys.modules[use.use.partition(":")[0]].__file__ or "").read_bytes()
    except (OSError, AttributeError):
        message, hint = f"{use.use} has no source file", "name a function of a module in Python"
        raise ConfigError("config.invalid_value", message, where=_WHERE, hint=hint) from None
    return Builder(use.use, function, inputs, is_divided, hashlib.sha256(source).hexdigest())
