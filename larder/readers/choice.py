"""Choice of a loader's samples in a split, by the index and without reading a shard.

A choice follows from the version, the seed and the options: ``where`` leaves samples out, ``limit``
takes some of the remaining samples, and ``weights`` draws as many with replacement, anew in every
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from larder.config.patterns import compile_globs
from larder.forking import cached_property
from larder.readers.epoch_order import ChosenSamples, Numbers, Words, hashed
from larder.readers.numbers import Array, checked_numbers
from larder.readers.options import Choice
from larder.readers.schedule import invalid, whole
from larder.readers.split import SplitSamples
from larder.units import format_count, format_names

_MOST_NAMES = 20


class Rows:
    """Some samples of a split in its index, for a function that chooses among them.

    Attributes:
        numbers: Numbers of the samples in the split, in order; int64.
    """

    def __init__(self, samples: SplitSamples, numbers: Numbers) -> None:
        self.numbers = numbers
        self._samples = samples

    @cached_property
    def keys(self) -> list[str]:
        """The key of each sample."""
        return self._samples.keys_of(self.numbers)

    @property
    def labels(self) -> Array:
        """The class number of each sample, or -1; int64."""
        return self._measures[1]

    @property
    def bytes(self) -> Array:
        """The bytes that each sample's parts take in the shard; int64."""
        return self._measures[0]

    @cached_property
    def _measures(self) -> tuple[Array, Array]:
        return self._samples.measures_of(self.numbers)


def choice_of(
    samples: SplitSamples, classes: Sequence[str], words: Words, choose: Choice
) -> ChosenSamples:
    """Choose samples of a split; the words follow from version, split and seed.

    Raises:
        ConfigError: ``config.invalid_value``: a class that does not exist, a limit or weights
            outside their range, or no sample is chosen.
    """
    numbers = None if choose.where is None else _matching(samples, classes, choose.where)
    if choose.limit is not None:
        every = np.arange(len(samples)) if numbers is None else numbers
        count = _count(choose.limit, len(every))
        first = np.argpartition(hashed(every, words[0]), count - 1)[:count]
        numbers = np.sort(every[first])
    if choose.weights is None:
        return ChosenSamples(len(samples), numbers)
    chosen = slice(None) if numbers is None else numbers
    labels = samples.labels()[chosen].astype(np.int32)
    weights = _weights(choose.weights, labels, len(samples), chosen)
    return ChosenSamples(len(samples), numbers, weights, labels)


def _matching(samples: SplitSamples, classes: Sequence[str], where: Any) -> Numbers:
    """Return the numbers of the matching samples, in ascending order."""
    chosen: Numbers
    if callable(where) or isinstance(where, Mapping):
        test = where if callable(where) else _test(where, classes)
        lots = (Rows(samples, numbers) for numbers in samples.lots())
        chosen = np.concatenate([_masked(rows.numbers, test(rows)) for rows in lots])
    elif np.asarray(where).dtype == np.bool_:
        chosen = _masked(np.arange(len(samples)), where)
    else:
        try:
            chosen = np.unique(checked_numbers(where, len(samples), "sample"))
        except (IndexError, TypeError) as error:
            hint = "give numbers of samples, or write {'label': 'cat'} or {'key': 'train/**'}"
            raise invalid(str(error), "where", hint) from None
    if not len(chosen):
        raise invalid(f"it is true for none of {len(samples):,} samples", "where")
    return chosen


def _masked(numbers: Numbers, mask: npt.ArrayLike) -> Numbers:
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.shape != numbers.shape:
        message = f"{array.dtype} of shape {array.shape} does not say which samples"
        raise invalid(message, "where", f"it takes booleans, of shape {numbers.shape} here")
    chosen: Numbers = numbers[array]
    return chosen


def _test(where: Mapping[str, Any], classes: Sequence[str]) -> Callable[[Rows], Array]:
    if not where or not set(where) <= {"label", "key"}:
        hint = "write {'label': ['cat', 3], 'key': 'train/**'}, or either of them"
        raise invalid(f"{list(where)} are no columns of the index", "where", hint)
    labels = None
    if "label" in where:
        labels = [_class(label, classes) for label in _listed(where["label"])]
    pattern = compile_globs(_globs(where["key"])) if "key" in where else None

    def test(rows: Rows) -> Array:
        mask = np.ones(len(rows.numbers), np.bool_)
        if labels is not None:
            mask &= np.isin(rows.labels, labels)
        if pattern is not None:
            mask &= np.fromiter((bool(pattern.fullmatch(key)) for key in rows.keys), np.bool_)
        return mask

    return test


def _class(label: Any, classes: Sequence[str]) -> int:
    if not isinstance(label, str):
        return whole("where", label, 0, len(classes) - 1)
    if label not in classes:
        hint = f"the classes are: {format_names(classes, _MOST_NAMES)}"
        raise invalid(f"there is no class {label!r}", "where", hint)
    return classes.index(label)


def _globs(value: Any) -> list[str]:
    globs = _listed(value)
    if not globs or not all(isinstance(glob, str) for glob in globs):
        raise invalid(f"{value!r} is no glob", "where", "write {'key': 'train/**'}")
    return globs


def _listed(value: Any) -> list[Any]:
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    return [value] if is_one else list(value)


def _count(limit: Any, samples: int) -> int:
    if not isinstance(limit, float | np.floating):
        return min(whole("limit", limit, 1), samples)
    if not 0 < limit <= 1:
        hint = "write 1000 for as many samples at most, or 0.1 for a tenth of them"
        raise invalid(f"{limit!r} is no fraction above 0 and of at most 1", "limit", hint)
    return max(1, round(float(limit) * samples))


def _weights(given: Any, labels: Array, samples: int, chosen: Any) -> npt.NDArray[np.float64]:
    """Return the weight of each chosen sample."""
    if isinstance(given, str):
        if given != "balanced":
            raise invalid(f"{given!r} is not 'balanced'", "weights")
        if labels.min() < 0:
            missing = format_count(int((labels < 0).sum()), "sample")
            hint = "leave them out with where, or give a weight of each sample"
            raise invalid(f"{missing} of {len(labels):,} have no class", "weights", hint)
        with np.errstate(divide="ignore"):  # a class may have no sample
            weights: npt.NDArray[np.float64] = (1 / np.bincount(labels))[labels]
        return weights
    try:
        weights = np.array(given, np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    if weights.shape != (samples,):
        message = f"they are no array of {samples:,} numbers, one for each sample of the split"
        raise invalid(message, "weights", "take them from data.labels(split), or write 'balanced'")
    weights = weights[chosen]
    with np.errstate(over="ignore"):
        if not (np.isfinite(weights).all() and weights.min() >= 0 and 0 < weights.sum() < np.inf):
            raise invalid("a weight is no number of at least 0, or all are 0", "weights")
    return weights
