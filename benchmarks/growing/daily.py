"""A dataset that gets one file a day: what a hundred runs cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.growing.body import Body
from benchmarks.growing.contenders import Ours
from benchmarks.growing.files import make_spare
from benchmarks.growing.names import Picks, pick
from benchmarks.growing.ours import Measured, prepare_daily
from benchmarks.growing.stores import Moved
from benchmarks.harness import apart, say

__all__ = ["SHOWN_DAYS", "Daily", "run_daily"]

SHOWN_DAYS = 10


@dataclass(frozen=True, slots=True)
class Daily:
    """What the days took; ``body`` are the files before the first day."""

    body: Body
    first: Measured
    days: tuple[Measured, ...]

    @property
    def seconds(self) -> float:
        """Of all days together."""
        return sum(day.seconds for day in self.days)

    @property
    def written_bytes(self) -> float:
        """Of all days together, manifests included."""
        return sum(day.written_bytes + (day.manifest_bytes or 0) for day in self.days)

    @property
    def first_days_seconds(self) -> float:
        """Of the first ten days."""
        return sum(day.seconds for day in self.days[:SHOWN_DAYS])

    @property
    def last_days_seconds(self) -> float:
        """Of the last ten days."""
        return sum(day.seconds for day in self.days[-SHOWN_DAYS:])


def run_daily(
    body: Body,
    fields: Mapping[str, Any],
    days: int,
    place: Path,
    *,
    before: Callable[[], None],
) -> Daily:
    """Build, then add a file a day, all days in one process; the files are as before at the end.

    ``before`` is called before the first build and before the first day.
    """
    ours = Ours(body, fields, place / "ours")
    files, spare = Path(body.files), Path(body.folder) / "spare"
    picks = pick(body.count, added=days)
    say(f"{body.name}, a file a day: first build")
    ours.folder.clear()
    before()
    first = ours.turn(Picks(), {}, first=True)
    make_spare(spare, body.names, picks)
    keys = [body.names.key(number, added=True) for number in picks.added]
    # Not in their order: a day's file may come anywhere.
    keys.sort(key=lambda key: key[::-1])
    renamed = [(str(spare / "new" / key), str(files / key)) for key in keys]
    before()
    say(f"{body.name}, a file a day: {days} days")
    try:
        found = apart(prepare_daily, body, fields, str(ours.folder.path), renamed)
    finally:
        for key in keys:
            (files / key).unlink(missing_ok=True)
    ours.folder.drop()
    return Daily(
        body, first, tuple(Measured(**{**day, "moved": Moved(**day["moved"])}) for day in found)
    )
