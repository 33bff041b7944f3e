"""What a change has to write, from the shards as they are: no measurement, only counting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

__all__ = ["Shards", "read_shards", "share_of_equal_shards"]


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


def read_shards(root: Path) -> Shards:
    """The shards of the version that ``latest`` names, in the dataset's folder."""
    tag = json.loads((root / "tags" / "latest.json").read_bytes())
    document = json.loads((root / "versions" / tag["version"] / "version.json").read_bytes())
    shards: list[Mapping[str, Any]] = []
    numbers: dict[tuple[str, str], int] = {}
    for row in _rows(root, document, "shards", ["segment", "name", "bytes", "samples"]):
        numbers[row["segment"], row["name"]] = len(shards)
        shards.append(row)
    of_key = {
        part["source"]: numbers[row["segment"], row["shard"]]
        for row in _rows(root, document, "samples", ["segment", "shard", "parts"])
        for part in row["parts"]
        if part["source"] is not None
    }
    return Shards([row["samples"] for row in shards], [row["bytes"] for row in shards], of_key)


def _rows(
    root: Path, document: Mapping[str, Any], role: str, columns: list[str]
) -> Iterable[Mapping[str, Any]]:
    for file in document["files"]:
        if file["role"] == role:
            for batch in pq.ParquetFile(root / file["path"]).iter_batches(columns=columns):
                yield from batch.to_pylist()
