"""A dataset that gets one file a day: the cost of its runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growing.body import Body
from benchmarks.growing.contenders import Ours
from benchmarks.growing.files import make_spare
from benchmarks.growing.names import Picks, pick
from benchmarks.growing.ours import Measured, prepare_daily
from benchmarks.growing.stores import Moved
from benchmarks.harness import apart, say

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


def run_daily(body: Body, days: int, place: Path) -> Daily:
    """Build, then add a file a day, all days in one process; the files are as before at the end."""
    ours = Ours(body, {}, place / "ours")
    files, spare = Path(body.files), Path(body.folder) / "spare"
    picks = pick(body.count, added=days)
    say(f"{body.name}, a file a day: first build")
    ours.folder.clear()
    os.sync()
    first = ours.turn(Picks(), {}, first=True)
    make_spare(spare, body.names, picks)
    keys = [body.names.key(number, added=True) for number in picks.added]
    # Not in their order: a day's file may come anywhere.
    keys.sort(key=lambda key: key[::-1])
    renamed = [(str(spare / "new" / key), str(files / key)) for key in keys]
    os.sync()
    say(f"{body.name}, a file a day: {days} days")
    try:
        found = apart(prepare_daily, body, {}, str(ours.folder.path), renamed)
    finally:
        for key in keys:
            (files / key).unlink(missing_ok=True)
    ours.folder.drop()
    return Daily(
        body, first, tuple(Measured(**{**day, "moved": Moved(**day["moved"])}) for day in found)
    )
