"""Deliveries, by which training reaches the data, and the facts of a version for configs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from larder.config.models.cluster import Cluster
from larder.errors import DamageError
from larder.manifest.sealed import MAKE_AGAIN, StoredFile
from larder.names import DELIVERED

MAX_CHANNELS = 20
"""Maximum number of channels of a training job of SageMaker."""

FIRST_WITH_LARDER = (0, 34)
"""The first release of Determined whose default image has Python 3.10, which Larder needs.

It is NVIDIA's (pytorch-ngc); up to 0.26.3 images have 3.7 or 3.8, up to 0.33 they have 3.9.
"""
BY_LARDER = frozenset({"bucket", "stream", "cache"})
"""The deliveries of Determined that need Larder in the image."""

LOCATION = "LARDER_LOCATION"
"""The variable in which a job finds the version for `larder.open`, where configs have no place."""


class Advice(NamedTuple):
    """The delivery that was chosen, and why; ``shards``: whether the config names the shards."""

    delivery: str
    sentence: str
    shards: bool = True


@dataclass(frozen=True, slots=True)
class DeliveredSplit:
    """One split of the version.

    Attributes:
        patterns: Brace patterns of its shards, such as
            ``segments/SEG/shards/train/digits-train-{000000..000003}.tar``: relative to the
            dataset's root. Empty for a split without samples.
        list: Path of the list of its shards, below the dataset's root, if its patterns are many.
        prefixes: Prefixes below the dataset's root with all of its shards and nothing else, one for
            each segment; empty if some prefixes have other shards, too.
        indexes: Paths of its indexes for other readers, below the dataset's root, by kind.
    """

    samples: int
    shards: int
    bytes: int
    patterns: tuple[str, ...]
    list: str | None = None
    prefixes: tuple[str, ...] = ()
    indexes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = (*self.patterns, *self.prefixes, *self.indexes.values())
        _check_paths(paths if self.list is None else (*paths, self.list))


class DeliveredVersion(NamedTuple):
    """The place of a version that is or will be published, and its delivery.

    Attributes:
        dataset: Name of the dataset.
        version: ID of the version, 32 hex digits.
        location: URL of the version, ``STORAGE/larder/DATASET/versions/ID``.
        root: URL or absolute path of the dataset's root, ``STORAGE/larder/DATASET/``.
        storage_url: URL or absolute path of the storage, ``STORAGE``.
        delivery: The delivery, with its reasons.
        replaces: Whether conflicting entries of the template are replaced, instead of refused.
    """

    dataset: str
    version: str
    location: str
    root: str
    storage_url: str
    delivery: Advice
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class VersionContents:
    """The contents of a published version.

    Attributes:
        digest: Content digest of the version.
        splits: Splits by name.
        classes: Number of classes; None for a dataset without labels.
        cache: Paths of the cache files of each split, relative to the root or below it; None if
            the version has no cache.
        index: Paths of the documents and indexes with which Larder finds samples in the shards.
        class_names: Names of the classes in the order of their numbers.
        shard_files: Reads the shard files of each split, in order, for consumers that list them.
    """

    digest: str
    splits: Mapping[str, DeliveredSplit]
    classes: int | None = None
    cache: Mapping[str, tuple[str, ...]] | None = None
    index: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    shard_files: Callable[[], Mapping[str, Sequence[StoredFile]]] = dict

    def __post_init__(self) -> None:
        _check_paths((*self.index, *chain.from_iterable((self.cache or {}).values())))


def _check_paths(paths: Iterable[str]) -> None:
    """Refuse texts that are no plain paths, which could be commands in a config."""
    for path in paths:
        if not DELIVERED.allows(path):
            message = "not a path that a config may have"
            raise DamageError("damage.manifest", message, where=path, hint=MAKE_AGAIN)


class ConfigRequest(NamedTuple):
    """A version whose config is made from a template; ``where`` names the template in errors."""

    template: dict[str, Any]
    delivered: DeliveredVersion
    contents: VersionContents
    cluster: Cluster
    where: str = ""


class ConfigFile(NamedTuple):
    """A file to emit: its name in the output directory, and its text.

    Attributes:
        in_storage: Whether the name is a key below the dataset's root, for a file that a consumer
            reads from the storage.
        signature: Beginning of Larder's own file. A file that begins differently is the user's, and
            is not replaced; Larder's own file is removed if there is no text.
        with_data: Whether the file says which version was copied into its folder.
        replaced: Entries of the template that Larder's own entries replaced.
    """

    name: str
    text: str
    in_storage: bool = False
    signature: str = ""
    with_data: bool = False
    replaced: tuple[str, ...] = ()
