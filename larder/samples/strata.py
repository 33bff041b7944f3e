"""Divides each class between splits by fractions: the arithmetic. Pure.

The samples of a class stand in the order of a seeded hash, and each split takes a range of them. A
split gets its fraction of the class, rounded up or down so that the counts add up. Which of the two
follows from a seeded number for the class, so that classes that are too small to be divided, such
as a thousand classes of two samples, are spread over the splits in the right proportion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_DIGITS = 6
"""Boundaries are rounded to so many decimals, so that 10 times 0.7 + 0.2 is 9."""

_Numbers = npt.NDArray[np.int64]
_Fractions = npt.NDArray[np.float64]


def targets(totals: _Numbers, fractions: Sequence[float], offsets: _Fractions) -> _Numbers:
    """How many samples of each class each split gets: its fraction, rounded up or down.

    ``offsets`` has a number from 0 to 1, without 1, for each class. The result has shape (classes,
    splits); each row adds up to the total of the class.
    """
    shares = np.broadcast_to(np.array(fractions), (len(totals), len(fractions)))
    return _divided(totals, shares, offsets)


def needs(wanted: _Numbers, kept: _Numbers, offsets: _Fractions) -> _Numbers:
    """How many of the new samples of each class each split gets.

    What a split lacks; where another has more than it should, in proportion to what each lacks. The
    arrays have shape (classes, splits): ``wanted`` are the `targets` of all samples, ``kept`` the
    samples that stay in their splits. Each row of the result adds up to the number of new samples.
    """
    new = wanted.sum(axis=1) - kept.sum(axis=1)
    lacking = np.maximum(wanted - kept, 0)
    return _divided(new, lacking / np.maximum(lacking.sum(axis=1, keepdims=True), 1), offsets)


def _divided(totals: _Numbers, shares: _Fractions, offsets: _Fractions) -> _Numbers:
    ends = np.round(totals[:, None] * np.cumsum(shares, axis=1), _DIGITS)
    bounds = np.floor(ends + offsets[:, None]).astype(np.int64)
    bounds[:, -1] = totals  # whatever the fractions add up to
    return np.diff(np.minimum(bounds, totals[:, None]), axis=1, prepend=0)


class Divider:
    """Gives the new samples of each class to splits, in the order in which they come."""

    def __init__(self, needed: _Numbers) -> None:
        self._bounds = np.cumsum(needed, axis=1)[:, :-1]
        self._given = np.zeros(len(needed), np.int64)

    def splits(self, classes: _Numbers, weights: _Numbers) -> npt.NDArray[np.int16]:
        """The split of the samples or groups that come next.

        Each has a class and, as its weight, a number of samples; a group is where its middle is.
        """
        by_class = np.argsort(classes, kind="stable")
        sorted_classes, sorted_weights = classes[by_class], weights[by_class]
        ends = np.cumsum(sorted_weights)
        starts = np.flatnonzero(np.diff(sorted_classes, prepend=-1))
        before = np.append(0, ends)[starts]
        lengths = np.diff(np.append(starts, len(classes)))
        ends += self._given[sorted_classes] - np.repeat(before, lengths)
        found = sorted_classes[starts]
        self._given[found] = ends[starts + lengths - 1]
        middles = ends - sorted_weights / 2
        chosen = (middles[:, None] > self._bounds[sorted_classes]).sum(axis=1)
        splits = np.empty(len(classes), np.int16)
        splits[by_class] = chosen
        return splits
