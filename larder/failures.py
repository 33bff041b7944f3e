"""The first failures and their number: what is kept of them does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from larder.errors import Failure

__all__ = ["SHOWN_FAILURES", "Failures"]

SHOWN_FAILURES = 1_000
"""So many failures are reported by name."""


@dataclass(slots=True)
class Failures:
    """Failures that are counted.

    Attributes:
        count: Their number.
        shown: The first `SHOWN_FAILURES` of them.
    """

    count: int = 0
    shown: list[Failure] = field(default_factory=list)

    def add(self, *failures: Failure) -> None:
        """Add some."""
        self.add_counted(failures, len(failures))

    def add_counted(self, failures: Iterable[Failure], count: int) -> None:
        """Add ``count`` failures, of which the first are given."""
        self.count += count
        for failure in failures:
            if len(self.shown) == SHOWN_FAILURES:
                return
            self.shown.append(failure)
