"""The errors that Larder raises.

::

    LarderError                 one line: what is wrong, where, what to do
     +-- ConfigError            the user's input is wrong or refused         exit 2
     |    +-- ProblemsError      all that is wrong with it
     +-- RetryableError         transient; raised when the retries ran out   exit 3
     +-- ObjectError            one object or sample: skip and report        exit 1
     |    +-- NotFoundError     it is not there
     |    +-- PreconditionError it changed, or exists already
     +-- FatalError             going on is pointless                        exit 1
          +-- StoreError        a store refuses or cannot be reached         exit 3
          +-- DamageError       published bytes are not what was published   exit 4

Classes are grouped by what a handler would do. Every error carries a dotted ``code`` from
`CODES`, which only ever grows. Interruption by the user is exit status 130.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "CODES",
    "ConfigError",
    "DamageError",
    "Failure",
    "FatalError",
    "LarderError",
    "NotFoundError",
    "ObjectError",
    "PreconditionError",
    "ProblemsError",
    "RetryableError",
    "StoreError",
    "printable",
]

_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys instead of showing it, and what turns the direction of a line."""

CODES: dict[str, str] = {
    "config.unknown_dataset": "no file in configs/datasets has that name",
    "config.unknown_cluster": "no file in configs/clusters has that name",
    "config.unknown_key": "a key that the file's schema does not have",
    "config.duplicate_key": "a key appears twice in one mapping",
    "config.invalid_value": "a value of the wrong type or outside its range",
    "config.invalid_yaml": "the file is not YAML",
    "config.unreadable": "a file of the configuration cannot be read",
    "config.missing_variable": "an environment variable that a value names is not set",
    "config.invalid_setting": "a --set argument is not key.path=value",
    "config.invalid_flag": "a command line argument is wrong",
    "config.secret": "a credential stands in a URL or a value where it would be recorded",
    "config.overlap": "the source lies inside the local URL, or the reverse",
    "config.unsupported_url": "a URL scheme that no store serves",
    "config.empty_source": "the source holds no object that is included",
    "config.unmatched_split": "an object or sample that no split, or more than one, takes",
    "config.bad_key": "a key that WebDataset's readers skip or merge, or the storage cannot have",
    "config.label": "a sample without a label, or a label file that cannot be understood",
    "config.cost_limit": "the plan costs more than max_cost_usd",
    "config.template": "the experiment template cannot be read or is not a mapping",
    "config.invalid_experiment": "the rendered config breaks a rule of its consumer",
    "config.missing_package": "an optional package that this needs is not installed",
    "config.path": "a local path that does not serve: not a directory, not absolute, in the way",
    "object.missing": "the object is not there",
    "object.changed": "the object is not the one that was listed, or changed while it was read",
    "object.exists": "an object of that name is there already",
    "object.unreadable": "the store refuses this one object",
    "object.bad_key": "the key cannot be represented at the other side",
    "object.truncated": "fewer or more bytes came than were announced",
    "object.mismatch": "the copy's bytes are not the source's",
    "sample.undecodable": "an image that cannot be decoded",
    "sample.empty": "a part of zero bytes where data is needed",
    "store.unavailable": "a store answers with a transient error, or not at all",
    "store.denied": "a store refuses the credentials or the permission",
    "store.missing": "the bucket, or the directory, does not exist",
    "store.region": "the bucket lives in another region than the one configured",
    "store.refused": "a store answers with an error that retrying does not fix",
    "store.full": "no space is left",
    "store.unconditional": "the store has no conditional write where one is needed",
    "run.failed": "some objects could not be handled; nothing was published",
    "run.endless": "a dataset that does not end, or passes its byte budget",
    "run.timeout": "a service did not start in time",
    "run.internal": "an unexpected error: a defect of Larder",
    "cache.format": "a cache written by another, unreadable format",
    "cache.missing": "the version has no cache for that split",
    "damage.digest": "bytes are not those that the digest names",
    "damage.size": "a file is missing, or shorter or longer than recorded",
    "damage.record": "a record's checksum does not match",
    "damage.manifest": "a manifest or a version document cannot be understood",
    "version.missing": "no such version or tag",
    "version.split": "the version has no such split",
    "run.interrupted": "the user interrupted the run",
    "cache.schema": "fields that a cache cannot hold, or a record that does not fit them",
    "run.server": "the Prefect server cannot be reached, or refuses",
    "run.output": "the result cannot be written to stdout",
}


def printable(text: str) -> str:
    r"""A text as part of one line: its control characters as ``\n``, ``\x1b`` or ``\u202e``.

    A key may hold what would colour a terminal, or look like another line of Larder's own.
    """
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


class LarderError(Exception):
    """Base of all errors that Larder raises on purpose.

    Args:
        code: Dotted code, one of `CODES`.
        message: What is wrong, as a clause without a full stop.
        where: The file, key or object it happened at; empty if there is none.
        hint: What to do about it, as a clause; empty if there is nothing to say.

    ``str(error)`` is always one line, without control characters.
    """

    exit_status = 1

    def __init__(self, code: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(code, message, where, hint)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        # An object's key is told as it is; a message may hold the lines of another program.
        where = f"{printable(self.where)}: " if self.where else ""
        hint = f"; {_one_line(self.hint)}" if self.hint else ""
        return f"{where}{_one_line(self.message)}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.where, self.hint))


def _rebuild(cls: type[LarderError], code: str, message: str, where: str, hint: str) -> LarderError:
    return cls(code, message, where=where, hint=hint)


class ConfigError(LarderError):
    """The user's input is wrong or refused: flags, files, limits."""

    exit_status = 2


class ProblemsError(ConfigError):
    """All that is wrong with the user's input; as one line, the first and how many more.

    Args:
        problems: One or more, the most telling first.
        message: Instead of the first one's message and the number of the others.
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
        """All the mistakes that an error tells of; itself if it tells of one."""
        return error.problems if isinstance(error, ProblemsError) else (error,)


class RetryableError(LarderError):
    """A transient failure of a store, such as a 503 or a broken connection.

    The retrying store repeats the call; a caller sees this only when the retries ran out.
    """

    exit_status = 3


class ObjectError(LarderError):
    """One object or sample cannot be handled; others can. Collected and reported."""


class NotFoundError(ObjectError):
    """The object is not there."""


class PreconditionError(ObjectError):
    """A conditional call found another state: the object changed, or exists already."""


class FatalError(LarderError):
    """Nothing that depends on this can go on."""


class StoreError(FatalError):
    """A store refuses (credentials, missing bucket) or cannot be reached."""

    exit_status = 3


class DamageError(FatalError):
    """Published bytes are not those that were published."""

    exit_status = 4


@dataclass(frozen=True, slots=True)
class Failure:
    """One object or sample that could not be handled, as it is reported to the user."""

    key: str
    code: str
    message: str

    @property
    def line(self) -> str:
        """The message, with the key in front unless it names it; without control characters."""
        key, message = printable(self.key), printable(self.message)
        return message if key in message else f"{key}: {message}"

    @classmethod
    def of(cls, key: str, error: LarderError) -> Failure:
        """The failure of ``key`` by ``error``."""
        return cls(key=key, code=error.code, message=str(error))
