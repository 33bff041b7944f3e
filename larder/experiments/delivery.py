"""How training reaches the data, and what its config has to know of a version. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from larder.config.urls import parse_url
from larder.errors import ConfigError

LOCATION = "LARDER_LOCATION"
"""The variable in which a job finds the version for `larder.open`, where configs have no place."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The delivery that was chosen, and why; ``shards``: whether the config names the shards."""

    delivery: str
    sentence: str
    shards: bool = True


_SENTENCES = {
    "bind_mount": "The data is on a file system of the nodes: containers see it through a bind"
    " mount.",
    "bucket": "The data is in the cluster's own bucket: containers read it from there.",
    "file": "SageMaker downloads the data to each instance before training starts.",
    "fast_file": "SageMaker shows the shards as files, and reads them when training does.",
    "pipe": "SageMaker streams the shards into named pipes.",
    "efs": "SageMaker mounts the file system of Amazon EFS that the data is in.",
    "fsx": "SageMaker mounts the file system of Amazon FSx for Lustre that the data is in.",
}
_IN_DIRECTORIES = frozenset({"bind_mount", "volume", "efs", "fsx"})
"""Deliveries of what is in a directory; the others are of what is in a bucket."""

_OMITTED = (
    "The shards contain samples that the version omits, so they are not named here: read with"
    " larder.open, or from the cache."
)


def choose(
    requested: str, storage_url: str, *, deliveries: Sequence[str], omitted: int = 0
) -> Advice:
    """Choose the delivery that the storage allows, or refuse the one that is ``requested``.

    ``deliveries`` are those that the consumer can render.

    Shards of which the version omits samples are not named: whoever reads them by their names would
    read these too. Source: Determined's guide Prepare Data.
    """
    if requested not in ("auto", *deliveries):
        message = f"the consumer has no delivery {requested}"
        hint = f"set experiment.delivery to auto, or to one of {', '.join(deliveries)}"
        raise ConfigError("config.invalid_value", message, where="experiment.delivery", hint=hint)
    kind = "directory" if parse_url(storage_url).is_directory else "bucket"
    possible = [each for each in deliveries if (each in _IN_DIRECTORIES) == (kind == "directory")]
    delivery = possible[0] if possible and requested == "auto" else requested
    if delivery not in possible:
        message = f"delivery {requested} is not possible: the storage is a {kind}"
        choice = "".join(f" or {each}" for each in possible)
        hint = f"set experiment.delivery to auto{choice}, or use another cluster"
        raise ConfigError("config.invalid_value", message, where=storage_url, hint=hint)
    sentence = _SENTENCES[delivery]
    return Advice(delivery, f"{_OMITTED} {sentence}" if omitted else sentence, not omitted)


@dataclass(frozen=True, slots=True)
class DeliveredSplit:
    """One split of the version.

    Attributes:
        patterns: Brace patterns of its shards, such as
            ``segments/SEG/shards/train/digits-train-{000000..000003}.tar``: relative to the
            dataset's root, or a URL or path below it. Empty for a split without samples.
        list: Path of the list of its shards, below the dataset's root, if its patterns are many.
        prefixes: Prefixes below the dataset's root that have all of its shards and nothing else,
            one of each segment; empty if some have other shards, too.
    """

    samples: int
    shards: int
    bytes: int
    patterns: tuple[str, ...]
    list: str | None = None
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveredVersion:
    """Where a version is, or will be once it is published.

    Attributes:
        dataset: Name of the dataset.
        version: ID of the version, 32 hex digits.
        location: URL of the version, ``STORAGE/larder/DATASET/versions/ID``.
        root: URL or absolute path of the dataset's root, ``STORAGE/larder/DATASET/``.
        storage_url: URL or absolute path of the storage, ``STORAGE``.
        delivery: How training reaches the data, and why.
        replaces: Whether what the template sets in its place is replaced, instead of refused.
    """

    dataset: str
    version: str
    location: str
    root: str
    storage_url: str
    delivery: Advice
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """What a published version contains.

    Attributes:
        digest: Its content digest.
        splits: By name.
        classes: Number of classes; None for a dataset without labels.
        cache: Paths of the cache files of each split, relative to the root or below it; None if
            the version has no cache.
        index: Paths of the documents and indexes with which Larder finds samples in the shards.
    """

    digest: str
    splits: Mapping[str, DeliveredSplit]
    classes: int | None = None
    cache: Mapping[str, tuple[str, ...]] | None = None
    index: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file to emit: its name in the output directory, and its text.

    ``in_storage``: the name is that of a key below the dataset's root instead, for what a consumer
    reads from there.
    """

    name: str
    text: str
    in_storage: bool = False
