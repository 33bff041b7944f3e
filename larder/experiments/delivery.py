"""How training reaches the data: a table of rules, first match wins.

Pure. Each rule has the sentence that the user sees and the source it comes from; a rule without a
delivery refuses. To add a rule, add a row; to decide by something new, add a field to `Situation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from larder.config.urls import parse_url
from larder.errors import ConfigError

__all__ = ["RULES", "Advice", "Rule", "Situation", "choose"]

_OBJECT_STORES = frozenset({"s3", "gs"})
_PREPARE_DATA = "Determined, Prepare Data"


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rules are based on.

    Attributes:
        requested: ``auto``, ``bind_mount`` or ``bucket``, from the dataset file.
        scheme: Scheme of the storage: ``file`` (also for a plain path), ``s3``, ``gs``, ...
    """

    requested: str
    scheme: str

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
        condition: Whether the rule applies.
        delivery: What it chooses; None refuses.
        sentence: What the user sees.
        source: Where the rule comes from.
        hint: What to do if the rule refuses.
    """

    id: str
    condition: Callable[[Situation], bool]
    delivery: str | None
    sentence: str
    source: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """The delivery that was chosen, and why."""

    delivery: str
    rule: str
    sentence: str
    source: str


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


def choose(requested: str, storage_url: str) -> Advice:
    """Choose the delivery.

    Args:
        requested: ``experiment.delivery`` of the dataset file.
        storage_url: URL or path of the storage.

    Raises:
        ConfigError: ``config.invalid_value``: the storage does not allow the requested delivery.
    """
    scheme = parse_url(storage_url).scheme or "file"
    situation = Situation(requested, scheme)
    rule = next((rule for rule in RULES if rule.condition(situation)), None)
    if rule is None or rule.delivery is None:
        sentence = rule.sentence if rule else f"there is no delivery {requested!r}"
        raise ConfigError(
            "config.invalid_value", sentence, where=storage_url, hint=rule.hint if rule else ""
        )
    return Advice(rule.delivery, rule.id, rule.sentence, rule.source)
