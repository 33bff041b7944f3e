"""What a change has to write, from the shards as they are: no measurement, only counting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import exp, lgamma
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from larder.store import open_store
from larder.versions.index import Shard
from larder.versions.index import read_shards as segment_shards
from larder.versions.publish import read_version
from larder.versions.tags import TAG, read_tag


def share_of_equal_shards(shards: int, samples: int) -> float:
    """The share of equal shards that random samples touch: 1-(1-1/S)^k."""
    return 1 - (1 - 1 / shards) ** samples


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a version: samples and bytes by shard, and the shard of each source object."""

    samples: Sequence[int]
    bytes: Sequence[int]
    of_key: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes)

    def expected_share(self, picked: int) -> float:
        """The share of shards that so many different random samples touch, on average."""
        touched = _chances(self.samples, picked)
        return sum(touched) / len(self.samples)

    def expected_bytes(self, picked: int) -> float:
        """The bytes of the shards that so many different random samples touch, on average."""
        touched = _chances(self.samples, picked)
        return sum(chance * each for chance, each in zip(touched, self.bytes, strict=True))

    def touched(self, keys: Iterable[str]) -> frozenset[int]:
        """The shards of these objects."""
        return frozenset(self.of_key[key] for key in keys)

    def touched_bytes(self, keys: Iterable[str]) -> int:
        """The bytes of the shards of these objects."""
        return sum(self.bytes[shard] for shard in self.touched(keys))


def _chances(samples: Sequence[int], picked: int) -> list[float]:
    """By shard, the chance that one of ``picked`` samples is in it: 1 less a product.

    Of N samples of which n are in the shard, the first pick misses it with a chance of (N-n)/N, the
    next with (N-n-1)/(N-1), and so on.
    """
    total = sum(samples)
    return [1 - _missed(total, each, picked) for each in samples]


def _missed(total: int, shard: int, picked: int) -> float:
    others = total - shard
    if picked > others:
        return 0.0
    # The product as factorials: others! / (others-picked)! over total! / (total-picked)!
    logarithm = (
        lgamma(others + 1)
        - lgamma(others - picked + 1)
        - lgamma(total + 1)
        + lgamma(total - picked + 1)
    )
    return exp(logarithm)


def read_shards(folder: Path) -> Shards:
    """The shards of the version that ``latest`` names, in the dataset's folder."""
    root = open_store(str(folder))
    tag = read_tag(root, TAG)
    document = read_version(root, tag.version) if tag else None
    assert document is not None, "nothing was published"
    shards: list[Shard] = []
    of_key: dict[str, int] = {}
    for rows, sources in zip(document.files_of("rows"), document.files_of("sources"), strict=True):
        of_segment = segment_shards(root, rows)
        owners = np.repeat(np.arange(len(of_segment)), [each.samples for each in of_segment])
        numbers = (owners + len(shards)).tolist()
        batches = pq.ParquetFile(folder / sources.path).iter_batches(columns=["parts"])
        samples = chain.from_iterable(batch.column("parts").to_pylist() for batch in batches)
        for number, parts in zip(numbers, samples, strict=True):
            of_key |= {part["source"]: number for part in parts}
        shards += of_segment
    return Shards([shard.samples for shard in shards], [shard.bytes for shard in shards], of_key)
