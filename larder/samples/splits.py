"""The split of an object or a sample: by globs on object keys, or by a seeded hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.dataset import GlobSplits, HashSplits
from larder.config.patterns import compile_globs
from larder.errors import ConfigError
from larder.samples.arrow_columns import column_flags, column_texts
from larder.samples.labels import Labeller
from larder.samples.naming import KeyPattern


def seeded_hashes(seed: int, purpose: bytes, texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Hash strings: blake2b of their UTF-8 with 8 bytes of output, as big-endian numbers.

    The key is the sha256 of the seed's decimal digits. The purpose, at most 16 bytes, is blake2b's
    ``person``: equal seeds for different purposes give unrelated hashes.
    """
    key = hashlib.sha256(str(seed).encode()).digest()
    empty = hashlib.blake2b(digest_size=8, key=key, person=purpose)
    digests: list[bytes] = []
    for text in texts:
        hasher = empty.copy()  # faster by a third than setting up the key each time
        hasher.update(text.encode())
        digests.append(hasher.digest())
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


NO_SPLIT = -1
"""The split of an object that matches no split."""

Splits = npt.NDArray[np.int16]
"""The number of a split for each object or sample."""


class SplitRule:
    """A rule for the splits of samples: numbers, in the order of the dataset file."""

    def of_objects(self, keys: pa.Array) -> Splits:
        """Return the split of each object key, or `NO_SPLIT`; 0 if the sample decides."""
        return np.zeros(len(keys), np.int16)

    def of_samples(self, sample_keys: pa.Array, of_objects: Splits) -> Splits:
        """Return each sample's split, given its objects' split; 0 if all samples together decide.

        Raises:
            ConfigError: ``config.unmatched_split``: the rule does not apply to a sample key.
        """
        return of_objects

    def divided(
        self,
        parts: Iterable[pa.RecordBatch],
        labeller: Labeller | None,
        published: Iterable[pa.RecordBatch],
        folder: Path,
    ) -> Iterable[pa.RecordBatch]:
        """Set the split of each part's sample, if all samples together decide."""
        return parts


class GlobRule(SplitRule):
    """Splits by globs on object keys; the first split with a matching glob wins."""

    def __init__(self, splits: GlobSplits) -> None:
        patterns = map(compile_globs, splits.globs.values())
        # In RE2, $ is the end of the string; Python's would also match before a final newline.
        self._patterns = [f"^(?:{pattern.pattern})$" if pattern else None for pattern in patterns]

    def of_objects(self, keys: pa.Array) -> Splits:
        splits = np.full(len(keys), NO_SPLIT, np.int16)
        for split, pattern in enumerate(self._patterns):
            left = np.flatnonzero(splits == NO_SPLIT)
            if not len(left):
                break
            if pattern is not None:
                matched = pc.match_substring_regex(keys.take(pa.array(left)), pattern)
                splits[left[column_flags(matched)]] = split
        return splits


class HashRule(SplitRule):
    """Splits by a seeded hash of the sample key, or of the first group of a pattern in it.

    The hash is a number from 0 to 1, and the fractions divide this range. The split of a sample
    depends only on the rule and the sample's key, so it does not change as the dataset grows.
    """

    def __init__(self, splits: HashSplits) -> None:
        self.hashes = KeyHashes(splits)
        # The last split gets the rest after rounding.
        ends = list(accumulate(splits.fractions.values()))[:-1]
        self._bounds = np.array([min(int(end * 2.0**64), 2**64 - 1) for end in ends], "u8")

    def of_samples(self, sample_keys: pa.Array, of_objects: Splits) -> Splits:
        hashes = self.hashes.of(column_texts(sample_keys))
        return np.searchsorted(self._bounds, hashes, side="right").astype(np.int16)


class KeyHashes:
    """Hashes of sample keys, or of the first group of ``splits.group`` in them."""

    def __init__(self, splits: HashSplits) -> None:
        self._seed = splits.seed
        self._group = None if splits.group is None else KeyPattern(splits.group, "splits.group")

    def of(self, sample_keys: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return the hash of each key; raise ``config.unmatched_split`` without a match."""
        groups = sample_keys if self._group is None else self._group.groups(sample_keys)
        for key, group in zip(sample_keys, groups, strict=True):
            if group is None:
                raise ConfigError(
                    "config.unmatched_split",
                    "the pattern of splits.group does not match this sample key",
                    where=key,
                    hint="change the pattern, or exclude the sample with source.exclude",
                )
        return seeded_hashes(self._seed, b"larder split", cast("Sequence[str]", groups))
