"""Identities, as functions of what goes in and what came out. Pure.

- The *inputs digest* is known right after the listing: the dataset's meaningful fields, and the
  keys, sizes and etags of the objects.
- The *segment ID* names a segment before any of it is written: it covers the ordered samples with
  their parts' etags and labels, and the options that shape them.
- The *version ID* follows from the segments and the samples omitted from them.
- The *content digest* covers what came out: it is the same on every machine, from a bucket or a
  directory, for the same files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from larder.config.models import Dataset, HashSplits
from larder.manifest.digest import canonical_json
from larder.versions.documents import CacheFacts, SegmentUse

__all__ = ["FORMATS", "content_digest", "inputs_digest", "segment_id", "version_id"]

FORMATS = {"grouping": 1, "cache": 1, "manifest": 1}
"""Versions of the formats whose bytes follow from the inputs: a new one causes a rebuild.

The version of the shards' format is an argument.
"""


def _digest(kind: str, value: Any) -> str:
    return hashlib.sha256(f"larder-{kind}-1\n".encode() + canonical_json(value)).hexdigest()


def _shape(dataset: Dataset, shards_version: int) -> dict[str, Any]:
    shape = dataset.model_dump(
        mode="json", include={"name", "splits", "labels", "shards", "on_bad_key", "on_bad_sample"}
    )
    if dataset.shards.count_min is None:  # it has no effect
        del shape["shards"]["count_min"]
    splits = dataset.splits
    if isinstance(splits, HashSplits):
        shape["splits"] = ["hash", splits.seed, list(splits.fractions.items()), splits.group]
    else:
        shape["splits"] = ["globs", *splits.items()]
    cache = dataset.cache.model_dump(mode="json") if dataset.cache else None
    formats = {**FORMATS, dataset.shards.format: shards_version}
    return {**shape, "validate": dataset.validation, "cache": cache, "formats": formats}


def inputs_digest(
    dataset: Dataset,
    inventory_digest: str,
    label_files: Mapping[str, str],
    *,
    shards_version: int,
) -> str:
    """The inputs digest, 64 hex digits.

    Fields that do not shape samples are left out: URLs, regions, mirror, description, experiment.

    Args:
        dataset: The dataset as configured.
        inventory_digest: Digest of the ordered keys, sizes and etags.
        label_files: By split, the sha256 of its label file.
        shards_version: Version of the format of its shards.
    """
    return _digest("inputs", [_shape(dataset, shards_version), inventory_digest, dict(label_files)])


def segment_id(
    dataset: Dataset,
    arrangement_digest: str,
    classes: Sequence[str],
    targets: Mapping[str, int] | None = None,
    *,
    shards_version: int,
) -> str:
    """The segment ID, 32 hex digits.

    Args:
        dataset: The dataset as configured; its shape options are used.
        arrangement_digest: Digest of the ordered samples, their labels and their parts' etags.
        classes: The classes in the order of their numbers.
        targets: By split, the size of shards if it is not ``shards.bytes``: the effect of
            ``shards.count_min``, which is not covered itself, so that setting it without effect
            rebuilds nothing.
        shards_version: Version of the format of its shards.
    """
    shape = _shape(dataset, shards_version)
    shape["shards"].pop("count_min", None)
    value = [shape, arrangement_digest, list(classes)]
    return _digest("segment", [*value, sorted(targets.items())] if targets else value)[:32]


def version_id(dataset: str, segments: Iterable[SegmentUse]) -> str:
    """The version ID, 32 hex digits: a function of the segments and their omissions."""
    return _digest("version", [dataset, [[use.id, use.omitted] for use in segments]])[:32]


def content_digest(
    shards: Iterable[tuple[str, str, int, str]], classes: Sequence[str], cache: CacheFacts | None
) -> str:
    """The content digest, 64 hex digits.

    Args:
        shards: Split, name, bytes and sha256 of every shard, in any order.
        classes: The classes in the order of their numbers.
        cache: The cache; its files are covered by the digests of their records.
    """
    hasher = hashlib.sha256(b"larder-content-1\n")
    for row in sorted(shards, key=lambda shard: shard[:2]):
        hasher.update(canonical_json(row) + b"\n")
    hasher.update(canonical_json(["classes", list(classes)]) + b"\n")
    if cache:
        files = {split: [file.digest for file in found] for split, found in cache.splits.items()}
        hasher.update(canonical_json(["cache", cache.kind, files]) + b"\n")
    return hasher.hexdigest()
