"""What a config needs to know about a version: the input of every renderer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from larder.experiments.delivery import Advice


@dataclass(frozen=True, slots=True)
class SplitInfo:
    """One split of the version.

    Attributes:
        patterns: Brace patterns of its shards, such as
            ``segments/SEG/shards/train/digits-train-{000000..000003}.tar``: relative to the
            dataset's root, or a URL or path below it. Empty for a split without samples.
        list: Path of the list of its shards, below the dataset's root, if its patterns are many.
    """

    samples: int
    shards: int
    bytes: int
    patterns: tuple[str, ...]
    list: str | None = None


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A published version and its location.

    Attributes:
        dataset: Name of the dataset.
        version: ID of the version, 32 hex digits.
        digest: Content digest of the version.
        location: URL of the version, ``STORAGE/larder/DATASET/versions/ID``.
        root: URL or absolute path of the dataset's root, ``STORAGE/larder/DATASET/``.
        storage_url: URL or absolute path of the storage, ``STORAGE``.
        delivery: How training reaches the data, and why.
        splits: By name.
        classes: Number of classes; None for a dataset without labels.
        cache: Paths of the cache files of each split, relative to the root or below it; None if
            the version has no cache.
    """

    dataset: str
    version: str
    digest: str
    location: str
    root: str
    storage_url: str
    delivery: Advice
    splits: Mapping[str, SplitInfo]
    classes: int | None = None
    cache: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file to emit: its name in the output directory, and its text."""

    name: str
    text: str
