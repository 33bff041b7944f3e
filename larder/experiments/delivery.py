"""How training reaches the data, and what its config has to know of a version.

Pure: a table of rules, of which the first match wins. Each has the sentence that the user sees and
the source it comes from; a rule without a delivery refuses. To add a rule, add a row; to decide by
something new, add a field to `Situation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from larder.config.urls import parse_url
from larder.errors import ConfigError

_OBJECT_STORES = frozenset({"s3", "gs"})
_PREPARE_DATA = "Determined, Prepare Data"
_OMITTED = "growth.removals: omit"


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rules are based on.

    Attributes:
        requested: ``auto``, ``bind_mount`` or ``bucket``, from the dataset file.
        scheme: Scheme of the storage: ``file`` (also for a plain path), ``s3``, ``gs``, ...
        takes: What the consumer can hand to training: ``code`` reads what the config names as it
            likes; ``shards`` are named one by one; a ``prefix`` is everything below it.
        omitted: Samples of its shards that the version omits.
        unlisted: Samples of its segments' other shards, which it does not list.
    """

    requested: str
    scheme: str
    takes: str = "code"
    segments: int = 1
    omitted: int = 0
    unlisted: int = 0

    @property
    def is_file_system(self) -> bool:
        """The storage is a directory."""
        return self.scheme == "file"

    @property
    def is_object_store(self) -> bool:
        """The storage is a bucket that a training container can reach."""
        return self.scheme in _OBJECT_STORES


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        id: Name of the rule; names are added, never changed.
        delivery: What it chooses; None refuses.
        code: The error's code if the rule refuses.
    """

    id: str
    condition: Callable[[Situation], bool]
    delivery: str | None
    sentence: str
    source: str
    hint: str = ""
    code: str = "config.invalid_value"
    shards: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """The delivery that was chosen, and why; ``shards``: whether the config names the shards."""

    delivery: str
    rule: str
    sentence: str
    source: str
    shards: bool = True


RULES: tuple[Rule, ...] = (
    Rule(
        "unreachable",
        lambda s: not s.is_file_system and not s.is_object_store,
        None,
        "training containers cannot reach this kind of storage",
        "derived",
        "use a directory or a bucket as the cluster's storage.url",
    ),
    Rule(
        "mount-needs-files",
        lambda s: s.requested == "bind_mount" and not s.is_file_system,
        None,
        "delivery bind_mount needs a directory that every node mounts, but the storage is a bucket",
        f"{_PREPARE_DATA}, Distributed File System",
        "set experiment.delivery to auto or bucket, or use a cluster whose storage.url is a path",
    ),
    Rule(
        "bucket-needs-store",
        lambda s: s.requested == "bucket" and not s.is_object_store,
        None,
        "delivery bucket needs an object store, but the storage is a directory",
        f"{_PREPARE_DATA}, Object Storage",
        "set experiment.delivery to auto or bind_mount, or use a cluster whose storage.url is a"
        " bucket",
    ),
    Rule(
        "omitted-needs-larder",
        lambda s: s.takes != "code" and s.omitted > 0,
        None,
        "the version omits samples of its shards, but this consumer reads shards as they are",
        _OMITTED,
        "run `larder compact`, which makes shards without them, and set growth.removals to repack",
        code="version.omitted",
    ),
    Rule(
        "prefix-needs-segment",
        lambda s: s.takes == "prefix" and (s.segments > 1 or s.unlisted > 0),
        None,
        "this consumer reads all shards below one prefix, but those of the version are not all"
        " shards below one prefix",
        "SageMaker, S3DataSource: S3Prefix",
        "run `larder compact`, which makes a version of one segment",
    ),
    Rule(
        "omitted-mount",
        lambda s: s.omitted > 0 and s.is_file_system,
        "bind_mount",
        "The shards contain samples that the version omits, so they are not named here: read with"
        " larder.open, or from the cache. Containers see the data through a bind mount.",
        _OMITTED,
        shards=False,
    ),
    Rule(
        "omitted-bucket",
        lambda s: s.omitted > 0,
        "bucket",
        "The shards contain samples that the version omits, so they are not named here: read with"
        " larder.open, or from the cache. Containers read the data from the bucket.",
        _OMITTED,
        shards=False,
    ),
    Rule(
        "requested",
        lambda s: s.requested == "bind_mount",
        "bind_mount",
        "The dataset file asks for a bind mount.",
        "the dataset file",
    ),
    Rule(
        "requested-bucket",
        lambda s: s.requested == "bucket",
        "bucket",
        "The dataset file asks for reading from the bucket.",
        "the dataset file",
    ),
    Rule(
        "mounted",
        lambda s: s.is_file_system,
        "bind_mount",
        "The data is on a file system of the nodes: containers see it through a bind mount.",
        f"{_PREPARE_DATA}, Distributed File System",
    ),
    Rule(
        "same-region",
        lambda s: s.is_object_store,
        "bucket",
        "The data is in the cluster's own bucket: containers read it from there.",
        f"{_PREPARE_DATA}, Object Storage",
    ),
)


TAKES = {"determined": "code"}
"""What each consumer can hand to training; see `Situation`."""


def choose(
    requested: str,
    storage_url: str,
    *,
    consumer: str = "determined",
    segments: int = 1,
    omitted: int = 0,
    unlisted: int = 0,
) -> Advice:
    """Choose the delivery; `Situation` describes the arguments."""
    scheme = parse_url(storage_url).scheme or "file"
    takes = TAKES[consumer]
    return advise(
        Situation(requested, scheme, takes, segments, omitted, unlisted), where=storage_url
    )


def advise(situation: Situation, *, where: str = "") -> Advice:
    """Apply the first rule that applies; a ConfigError if it refuses."""
    rule = next((rule for rule in RULES if rule.condition(situation)), None)
    if rule is None:
        message = f"there is no delivery {situation.requested!r}"
        raise ConfigError("config.invalid_value", message, where=where)
    if rule.delivery is None:
        raise ConfigError(rule.code, rule.sentence, where=where, hint=rule.hint)
    return Advice(rule.delivery, rule.id, rule.sentence, rule.source, rule.shards)


@dataclass(frozen=True, slots=True)
class DeliveredSplit:
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
class DeliveredVersion:
    """Where a version is, or will be once it is published.

    Attributes:
        dataset: Name of the dataset.
        version: ID of the version, 32 hex digits.
        location: URL of the version, ``STORAGE/larder/DATASET/versions/ID``.
        root: URL or absolute path of the dataset's root, ``STORAGE/larder/DATASET/``.
        storage_url: URL or absolute path of the storage, ``STORAGE``.
        delivery: How training reaches the data, and why.
    """

    dataset: str
    version: str
    location: str
    root: str
    storage_url: str
    delivery: Advice


@dataclass(frozen=True, slots=True)
class Contents:
    """What a published version contains.

    Attributes:
        digest: Its content digest.
        splits: By name.
        classes: Number of classes; None for a dataset without labels.
        cache: Paths of the cache files of each split, relative to the root or below it; None if
            the version has no cache.
    """

    digest: str
    splits: Mapping[str, DeliveredSplit]
    classes: int | None = None
    cache: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file to emit: its name in the output directory, and its text."""

    name: str
    text: str
