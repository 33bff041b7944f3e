"""What is packed: a body of samples, and the steps of its growth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.growing.invented import Invented
from benchmarks.growing.names import Names, Picks, pick


@dataclass(frozen=True, slots=True)
class Body:
    """Samples to pack.

    ``folder`` is that of real files, which has ``repository/files``; empty if they are invented.
    """

    name: str
    names: Names
    mean_bytes: int
    shard_bytes: int
    folder: str = ""

    @property
    def count(self) -> int:
        """Number of samples before any change."""
        return self.names.count

    @property
    def real(self) -> bool:
        """Whether they are files."""
        return bool(self.folder)

    @property
    def files(self) -> str:
        return f"{self.folder}/repository/files"

    def invented(self, picks: Picks) -> Invented:
        """The objects after a change, if they are invented."""
        return Invented(self.names, self.mean_bytes, picks)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the body as it was first built.

    ``removals`` is the policy, for ours; the peers have none, and are not asked twice. ``peers``:
    whether they do this step too.
    """

    name: str
    picks: Picks
    removals: str = "repack"
    peers: bool = True

    @property
    def fields(self) -> Mapping[str, Any]:
        """Fields of the dataset file."""
        return {"growth": {"removals": self.removals}}


FIRST = "first build"
ADDED, REMOVED, CHANGED = "1 percent added", "0.1 percent removed", "0.01 percent changed"


def steps(count: int) -> list[Step]:
    """The steps of a body of ``count`` samples; each starts from the first build."""
    hundredth, thousandth, rest = (max(1, count // part) for part in (100, 1_000, 10_000))
    removed = pick(count, removed=thousandth)
    return [
        Step("nothing changed", Picks(), peers=False),
        Step(ADDED, pick(count, added=hundredth)),
        Step(f"{REMOVED}, repack", removed),
        Step(f"{REMOVED}, omit", removed, "omit", peers=False),
        Step(CHANGED, pick(count, changed=rest)),
    ]
