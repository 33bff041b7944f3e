"""The split of an object or a sample: by globs on object keys, or by a seeded hash.

Splits are numbers here: indexes in the order in which the dataset file names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import HashSplits
from larder.config.patterns import compile_globs
from larder.errors import ConfigError
from larder.samples.keys import KeyPattern, seeded_hashes

NO_SPLIT = -1
"""The split of an object that matches no split."""

_Splits = npt.NDArray[np.int16]


class GlobRule:
    """Splits by globs on object keys; the first split with a matching glob wins."""

    def __init__(self, splits: Mapping[str, Sequence[str]]) -> None:
        patterns = map(compile_globs, splits.values())
        # In RE2, $ is the end of the string; Python's would also match before a final newline.
        self._patterns = [f"^(?:{pattern.pattern})$" if pattern else None for pattern in patterns]

    def of_objects(self, keys: pa.Array) -> _Splits:
        """The split of each object key, or `NO_SPLIT`; shape (keys,)."""
        splits = np.full(len(keys), NO_SPLIT, np.int16)
        for split, pattern in enumerate(self._patterns):
            left = np.flatnonzero(splits == NO_SPLIT)
            if not len(left):
                break
            if pattern is not None:
                matched = pc.match_substring_regex(keys.take(pa.array(left)), pattern)
                splits[left[matched.to_numpy(zero_copy_only=False)]] = split
        return splits


class HashRule:
    """Splits by a seeded hash of the sample key, or of the first group of a pattern in it.

    The hash is a number from 0 to 1, and the fractions divide that range. The split of a sample
    depends only on the rule and its own key, so it stays the same as the dataset grows.
    """

    def __init__(self, splits: HashSplits) -> None:
        self._seed = splits.seed
        self._group = None if splits.group is None else KeyPattern(splits.group, "splits.group")
        # The last split gets the rest after rounding.
        ends = list(accumulate(splits.fractions.values()))[:-1]
        self._bounds = np.array([min(int(end * 2.0**64), 2**64 - 1) for end in ends], "u8")

    def of_known(self, sample_keys: Iterable[str]) -> _Splits:
        """The same as `of_samples`, but `NO_SPLIT` where the pattern is not found."""
        keys = list(sample_keys)
        groups = keys if self._group is None else self._group.groups(keys)
        found = np.array([group is not None for group in groups], np.bool_)
        splits = np.full(len(keys), NO_SPLIT, np.int16)
        splits[found] = self.of_samples([key for key, ok in zip(keys, found, strict=True) if ok])
        return splits

    def of_samples(self, sample_keys: Iterable[str]) -> _Splits:
        """The split of each sample; ``config.unmatched_split`` where the pattern is not found."""
        return np.searchsorted(self._bounds, self.hashes(sample_keys), side="right").astype(
            np.int16
        )

    def hashes(self, sample_keys: Iterable[str]) -> npt.NDArray[np.uint64]:
        """The hash of each sample's key or group, refused as by `of_samples`."""
        texts = sample_keys if self._group is None else self._groups_of(list(sample_keys))
        return seeded_hashes(self._seed, b"larder split", texts)

    def _groups_of(self, sample_keys: Sequence[str]) -> Iterator[str]:
        assert self._group is not None, "there is a pattern"
        for key, group in zip(sample_keys, self._group.groups(sample_keys), strict=True):
            if group is None:
                raise ConfigError(
                    "config.unmatched_split",
                    "the pattern of splits.group does not match this sample key",
                    where=key,
                    hint="change the pattern, or exclude the sample with source.exclude",
                )
            yield group
