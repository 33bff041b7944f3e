"""The progress of one stage: counts, rate and time left, and how they are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from larder.units import format_bytes, format_count, format_seconds

STAGES: dict[str, str] = {
    "inventory": "object",
    "expand": "object",
    "compare": "object",
    "plan": "object",
    "prefect": "",
    "skyplane": "",
    "mirror": "object",
    "prune": "object",
    "inspect": "file",
    "verify": "file",
    "repair": "file",
    "shard": "sample",
    "index": "",
    "cache": "record",
    "publish": "",
    "emit": "",
}
"""Every stage that may be shown, and what it counts; empty if it counts nothing."""

_SETTLED_SECONDS = 1.0
_MEASURABLE_SECONDS = 0.1


@dataclass(slots=True)
class Stage:
    """The state of a stage. Times are seconds of a monotonic clock.

    Attributes:
        ended: When it finished; None while it is running.
        objects: Objects done, or whatever the stage counts; see `STAGES`.
        note: What it is doing while it has nothing to count.
    """

    name: str
    began: float
    ended: float | None = None
    objects: int = 0
    bytes: int = 0
    total_objects: int | None = None
    total_bytes: int | None = None
    note: str = ""

    @property
    def waits(self) -> bool:
        """Whether it is running and has nothing to count, only a note and a duration."""
        counted = self.objects or self.bytes or self.total_objects or self.total_bytes
        return self.ended is None and not counted

    @property
    def noun(self) -> str:
        return STAGES.get(self.name) or "object"

    def seconds(self, now: float) -> float:
        return max(0.0, (now if self.ended is None else self.ended) - self.began)

    def fraction(self) -> float | None:
        """The fraction done, in bytes if their total is known, else in objects."""
        for done, total in ((self.bytes, self.total_bytes), (self.objects, self.total_objects)):
            if total:
                return min(1.0, done / total)
        return None

    def objects_text(self) -> str:
        """``1,200 of 3,000 samples``, or ``1,200 samples`` while the total is unknown."""
        total = self.total_objects
        if total is None or self.objects == total:
            return format_count(self.objects, self.noun)
        return f"{self.objects:,} of {format_count(total, self.noun)}"

    def bytes_text(self) -> str:
        """``13 MB of 33 MB``, at the end ``33 MB``; empty if the stage counts no bytes."""
        total = self.total_bytes
        if not total and not self.bytes:
            return ""
        done = format_bytes(self.bytes)
        if total is None or self.bytes == total or self.ended is not None:
            return done
        return f"{done} of {format_bytes(total)}"

    def rate_text(self, now: float) -> str:
        """``12 MB/s``, or ``80 objects/s`` if no bytes are counted; empty at the start."""
        seconds = self.seconds(now)
        if seconds < _MEASURABLE_SECONDS or not (self.bytes or self.objects):
            return ""
        if self.bytes:
            return f"{format_bytes(self.bytes / seconds)}/s"
        return f"{self.objects / seconds:,.0f} {self.noun}s/s"

    def left_text(self, now: float) -> str:
        """``20 s left``; empty while it is unknown."""
        fraction, seconds = self.fraction(), self.seconds(now)
        if self.ended is not None or not fraction or seconds < _SETTLED_SECONDS:
            return ""
        return f"{format_seconds(seconds / fraction - seconds)} left"

    def totals_text(self) -> str:
        """``3,000 objects, 33 MB``: the totals; empty while they are unknown."""
        objects = "" if self.total_objects is None else format_count(self.total_objects, self.noun)
        size = "" if self.total_bytes is None else format_bytes(self.total_bytes)
        return joined(objects, size)


def joined(*texts: str) -> str:
    """The non-empty strings, separated by commas."""
    return ", ".join(text for text in texts if text)
