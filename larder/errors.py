"""The errors that Larder raises.

::

    LarderError                 one line: what is wrong, where, what to do
     +-- ConfigError            the user's input is wrong or refused         exit 2
     |    +-- ProblemsError      several mistakes
     +-- RetryableError         transient; raised when the retries ran out   exit 3
     +-- ObjectError            one object or sample: skip and report        exit 1
     |    +-- NotFoundError     it does not exist
     |    +-- PreconditionError it changed, or already exists
     +-- FatalError             continuing is pointless                      exit 1
          +-- StoreError        a store refuses or cannot be reached         exit 3
          +-- DamageError       published bytes are not what was published   exit 4
          +-- SupersededError   another run has moved the tag, or cleaned    exit 1

Classes are grouped by what a handler would do. Every error has a dotted ``code`` from `CODES`,
which only ever grows. Interruption by the user is exit status 130.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal interprets instead of showing, or that change the text direction."""

SHOWN_FAILURES = 1_000
"""The most failures that are kept and reported by name."""

SHOWN_CHARACTERS = 1_500
"""Characters of a place, a message or a hint that are shown. A key of 1,024 fits with its URL."""

CODES: dict[str, str] = {
    "config.unknown_dataset": "no file in configs/datasets has that name",
    "config.unknown_cluster": "no file in configs/clusters has that name",
    "config.unknown_key": "a key that the file's schema does not have",
    "config.duplicate_key": "a key appears twice in one mapping",
    "config.invalid_value": "a value of the wrong type or outside its range",
    "config.invalid_yaml": "the file is not valid YAML",
    "config.unreadable": "a file of the configuration cannot be read",
    "config.missing_variable": "an environment variable that a value names is not set",
    "config.invalid_setting": "a --set argument is not key.path=value",
    "config.invalid_flag": "a command line argument is wrong",
    "config.secret": "a URL or value that would be recorded contains a credential",
    "config.block": "the block with the credentials cannot be loaded, or has none",
    "config.inventory": "the report that lists the source is missing, damaged or not of the source",
    "config.overlap": "the source is inside the storage, or the reverse",
    "config.unsupported_url": "a URL scheme that is not supported",
    "config.empty_source": "the source has no included object",
    "config.unmatched_split": "an object or sample that matches no split, or more than one",
    "config.bad_key": "a key that WebDataset readers skip or merge, or the storage cannot hold",
    "config.missing_part": "a sample lacks a part or an annotation, or an annotation its sample",
    "config.annotations": "an annotation file that is missing or invalid, or an unclear entry",
    "config.label": "a sample without a label, or an invalid label file",
    "config.cost_limit": "the plan costs more than max_cost_usd",
    "config.template": "the experiment template cannot be read or is not a mapping",
    "config.invalid_experiment": "the rendered config breaks a rule of its consumer",
    "config.missing_package": "a package is not installed, or cannot be imported",
    "config.prune": "a prune that is refused: no record of the source, or too many objects",
    "config.runner": "the cluster that runs the batches does not answer, or cannot do them",
    "config.work_pool": "Prefect has no such work pool, or it has no image, or another worker",
    "config.deployment": "a deployment of Prefect that belongs to another checkout or work pool",
    "config.path": "an unusable local path: not a writable directory, not absolute, or taken",
    "object.missing": "the object does not exist",
    "object.changed": "the object changed since it was listed, or while it was read",
    "object.exists": "an object with that key already exists",
    "object.unreadable": "the store refuses access to this one object",
    "object.bad_key": "the key cannot be represented in the other store",
    "object.truncated": "fewer or more bytes were received than announced",
    "object.mismatch": "the bytes of the copy differ from the source",
    "object.format": "an archive or table in the source that is damaged, or not what it should be",
    "sample.undecodable": "an image or other part that cannot be decoded, or one that is not the "
    "numbers that `shards.features` makes of it",
    "sample.empty": "a part of zero bytes where data is needed, or a row of a table without a part",
    "store.unavailable": "a store answers with a transient error, or not at all",
    "store.denied": "a store refuses the credentials or the permission",
    "store.missing": "the bucket or directory does not exist",
    "store.region": "the bucket is in another region than the configured one",
    "store.refused": "a store answers with an error that retrying does not fix",
    "store.full": "no space is left, or the plan needs more than is free",
    "store.unconditional": "the store does not support a conditional write that is needed",
    "run.failed": "some objects could not be handled; nothing was published",
    "run.endless": "a dataset that does not end, or exceeds its byte budget",
    "run.timeout": "a service did not start in time",
    "run.limit": "a limit of the system is reached: open files, processes, threads, or memory",
    "run.internal": "an unexpected error: a bug in Larder",
    "cache.format": "a cache in another, unsupported format",
    "cache.changed": "the function whose elements are cached has changed",
    "cache.missing": "there is no such cache, or the version has none for that split",
    "cache.in_use": "a cache that is read, or has a lease, and is not removed",
    "damage.digest": "bytes do not match their digest",
    "damage.size": "a file is missing, or shorter or longer than recorded",
    "damage.record": "a record's checksum does not match",
    "damage.manifest": "a manifest, an index or a document is invalid",
    "damage.foreign": "a file that nothing names, among those that are published",
    "version.missing": "no such version or tag",
    "version.ambiguous": "several versions begin with the digits given",
    "version.pinned": "a tag that is pinned is not moved or deleted",
    "version.cleaned": "a clean deletes what a run needs, or has deleted it",
    "version.split": "the version has no such split",
    "version.sample": "the version has no such sample",
    "version.omitted": "the version omits samples that its shards contain",
    "run.interrupted": "the user interrupted the run",
    "cache.schema": "fields that a cache cannot hold, or a record that does not match them",
    "run.server": "the Prefect server cannot be reached, or refuses the request",
    "run.incomplete": "an epoch of training ended before its last batch",
    "run.output": "the result cannot be written to stdout",
    "version.superseded": "another run has moved the tag since this run listed the source",
}


def printable(text: str) -> str:
    """Escape control characters, by which a key could colour a terminal or imitate a line."""
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shortened(text: str) -> str:
    """Cut the middle out of a text that is longer than any key of a bucket with its address."""
    if len(text) <= SHOWN_CHARACTERS:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]} ... ({len(text):,} characters) ... {text[-half:]}"


def shown(text: str) -> str:
    return printable(shortened(text))


def _one_line(text: str) -> str:
    return shown(" ".join(text.split()))


class LarderError(Exception):
    """Base of all errors that Larder raises deliberately.

    Args:
        code: Dotted code, one of `CODES`.
        message: What is wrong, as a clause without a full stop.
        where: The file, key or object concerned; may be empty.
        hint: What to do about it, as a clause; may be empty.

    ``str(error)`` is always one line, without control characters.

    Attributes:
        attempts: Number of attempts of the failed call; set by code that repeats calls.
    """

    exit_status = 1
    attempts = 1

    def __init__(self, code: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(code, message, where, hint)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        # An object's key is kept as it is; a message may contain several lines of another program.
        where = f"{shown(self.where)}: " if self.where else ""
        hint = f"; {_one_line(self.hint)}" if self.hint else ""
        return f"{where}{_one_line(self.message)}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all fields: keyword arguments are lost otherwise."""
        where = {"where": self.where, "hint": self.hint}
        return (partial(type(self), self.code, self.message, **where), ())


class ConfigError(LarderError):
    """The user's input is invalid or refused: flags, files, limits."""

    exit_status = 2


class ProblemsError(ConfigError):
    """All mistakes in the user's input; ``str()`` gives the first and the number of the others.

    Args:
        problems: One or more mistakes, the most informative first.
        message: Replaces the message of the first and the number of the others.
    """

    def __init__(self, problems: Sequence[ConfigError], message: str = "") -> None:
        first, *others = problems
        more = f" (and {len(others)} more)" if others else ""
        message = message or f"{first.message}{more}"
        super().__init__(first.code, message, where=first.where, hint=first.hint)
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[object, ...]:
        return (ProblemsError, (self.problems, self.message))

    @staticmethod
    def of(error: ConfigError) -> tuple[ConfigError, ...]:
        """Return all mistakes that an error reports; a single mistake reports itself."""
        return error.problems if isinstance(error, ProblemsError) else (error,)


class RetryableError(LarderError):
    """A transient failure of a store, such as a 503 or a broken connection.

    The retrying store repeats the call; callers see this only when the retries are exhausted.

    Attributes:
        after_seconds: How long the store asks to wait (its Retry-After); 0 if it does not say.
        within_seconds: For how long the call is worth repeating, if less than for other failures.
        lasted_seconds: For how long the call was repeated.
    """

    exit_status = 3
    after_seconds: float = 0.0
    within_seconds: float = math.inf
    lasted_seconds: float = 0.0


class ObjectError(LarderError):
    """One object or sample cannot be processed, but others can. Collected and reported."""


class NotFoundError(ObjectError):
    """The object does not exist."""


class PreconditionError(ObjectError):
    """The condition of a call was not met: the object changed, or already exists."""


class FatalError(LarderError):
    """A failure after which nothing that depends on it can continue.

    ``document`` is what a command returns nevertheless, such as of the verification that saw the
    damage.
    """

    document: Mapping[str, Any] | None = None


class StoreError(FatalError):
    """A store refuses requests (credentials, missing bucket) or cannot be reached."""

    exit_status = 3


class DamageError(FatalError):
    """Published data is damaged."""

    exit_status = 4


class SupersededError(FatalError):
    """Another run has moved the tag, or a clean has deleted data that this run needs."""


class Failure(NamedTuple):
    """One object or sample that could not be processed, as reported to the user."""

    key: str
    code: str
    message: str
    attempts: int = 1

    @property
    def line(self) -> str:
        """The message, preceded by the key unless it contains it; without control characters."""
        key, message = shown(self.key), printable(self.message)
        return message if key in message else f"{key}: {message}"

    @classmethod
    def of(cls, key: str, error: LarderError) -> Failure:
        return cls(key=key, code=error.code, message=str(error), attempts=error.attempts)


@dataclass(slots=True)
class Failures:
    """The number of failures, and the first `SHOWN_FAILURES` failures."""

    count: int = 0
    shown: list[Failure] = field(default_factory=list)

    @property
    def room(self) -> int:
        return SHOWN_FAILURES - len(self.shown)

    def add(self, *failures: Failure) -> None:
        self.add_counted(failures, len(failures))

    def add_counted(self, failures: Iterable[Failure], count: int) -> None:
        """Add ``count`` failures; ``failures`` are the first, kept while there is `room`."""
        self.count += count
        self.shown += islice(failures, self.room)
