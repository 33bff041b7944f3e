"""How a stage says how far it is, without knowing who listens.

A stage is given a `Progress` and calls it from any thread. `NullProgress` listens to nobody;
the command line has one that draws.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["NullProgress", "Progress"]


class Progress(Protocol):
    """Listens to the progress of stages. Every method may be called from any thread."""

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Stage ``stage`` begins; its totals, where they are known."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """So many more objects and bytes of ``stage`` are done."""

    def finish(self, stage: str) -> None:
        """Stage ``stage`` is done."""


class NullProgress:
    """Listens to nobody."""

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Ignored."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """Ignored."""

    def finish(self, stage: str) -> None:
        """Ignored."""
