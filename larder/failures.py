"""The first failures and their number: what is kept of them does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from larder.errors import Failure

SHOWN_FAILURES = 1_000
"""So many failures are reported by name."""


@dataclass(slots=True)
class Failures:
    """Failures that are counted, of which the first `SHOWN_FAILURES` are kept."""

    count: int = 0
    shown: list[Failure] = field(default_factory=list)

    @property
    def room(self) -> int:
        """How many more will be shown."""
        return SHOWN_FAILURES - len(self.shown)

    def add(self, *failures: Failure) -> None:
        self.add_counted(failures, len(failures))

    def add_counted(self, failures: Iterable[Failure], count: int) -> None:
        """Add ``count`` failures, of which the first are given: as many as there is room for."""
        self.count += count
        self.shown += islice(failures, self.room)
