"""What a verification finds: values that name a file, what is wrong with it, and its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from larder.errors import DamageError, printable
from larder.pipeline.results import Totals
from larder.units import format_count

SHOWN_SAMPLES = 10
"""Maximum number of samples of a finding that are kept by name."""

Role = Literal[
    "tag", "document", "manifest", "shard", "index", "cache", "content", "foreign", "aside"
]
"""What a finding is about.

- ``tag``; ``document``: version.json, segment.json or cache.json, or its second copy; ``manifest``:
  a file that one of these names.
- ``shard``: a file of a shard; ``index``: its index for another reader; ``cache``: a cache file.
- ``content``: figures that do not agree although every file is as it was published.
- ``foreign``: a file that nothing names; ``aside``: one that a repair has moved aside.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a file below the dataset's root.

    ``samples`` are the first keys of the ``count`` that are concerned; ``sha256`` is that of what
    is in its place, empty if that is not known.
    """

    path: str
    role: Role
    code: str
    message: str
    samples: tuple[str, ...] = ()
    count: int = 0
    sha256: str = ""

    @property
    def line(self) -> str:
        concerned = f"; {_concerned(self.samples, self.count)}" if self.count else ""
        return f"{printable(self.path)}: {printable(self.message)}{concerned}"


def _concerned(samples: Sequence[str], count: int) -> str:
    shown = ", ".join(map(printable, samples[:3]))
    more = f" and {count - min(3, len(samples)):,} more" if count > min(3, len(samples)) else ""
    names = f": {shown}{more}" if shown else ""
    return f"{format_count(count, 'sample')} concerned{names}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What is wrong with some files, and how many were read."""

    findings: tuple[Finding, ...] = ()
    read: Totals = field(default_factory=Totals)


class DamagedError(DamageError):
    """A version is not as it was published; ``document`` is that of the verification."""

    def __init__(self, first: Finding, others: int, hint: str, document: dict[str, object]) -> None:
        more = f" (and {format_count(others, 'more finding')})" if others else ""
        super().__init__(first.code, f"{first.message}{more}", where=first.path, hint=hint)
        self._arguments = first, others, hint, document
        self.document = document

    @property
    def fields(self) -> dict[str, str]:
        """The error as the documents of other commands have it."""
        names = ("code", "message", "where", "hint")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all arguments, which a task run may send to another process."""
        return (DamagedError, self._arguments)
