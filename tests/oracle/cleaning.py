"""A slow twin of `larder clean`: which units must go, must stay, or may do either.

It is written from docs/how-to/tags-and-cleaning.md and docs/design/007-cleaning.md alone, and
shares no code with `larder.catalog`. Times are seconds. A unit is a version, a segment or a cache,
named by its prefix: ``versions/ID``, ``segments/ID``, ``segments/ID/caches/ID``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Policy:
    """The flags of a clean, in seconds."""

    keep: int
    older: float
    grace: float


@dataclass(frozen=True)
class Version:
    """A published version: its samples by key, the time of its document, and the units it names."""

    samples: dict[str, bytes]
    written: float
    units: frozenset[str]


@dataclass(frozen=True)
class Keeper:
    """A tag or a lease: it keeps units until a time."""

    units: frozenset[str]
    until: float = float("inf")


@dataclass
class Oracle:
    """A dataset as the commands have left it.

    ``keepers`` are named as in a report, such as ``tag latest``; ``units`` has the time of each
    unit's youngest file. A unit may have been announced at the times of ``maybe``, and surely has
    been since ``surely``; a killed clean may have begun to delete what has ``begun``.
    """

    versions: dict[str, Version] = field(default_factory=dict)
    keepers: dict[str, Keeper] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=dict)
    maybe: dict[str, set[float]] = field(default_factory=dict)
    surely: dict[str, float] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def kept(self, policy: Policy, now: float) -> dict[str, set[str]]:
        """The versions that stay, with all reasons."""
        newest = sorted(self.versions, key=lambda each: -self.versions[each].written)
        found: dict[str, set[str]] = {}
        for version, facts in self.versions.items():
            live = {name: keeper for name, keeper in self.keepers.items() if keeper.until > now}
            reasons = {name for name in live if f"versions/{version}" in live[name].units}
            reasons |= {"newest"} if version in newest[: policy.keep] else set()
            reasons |= {"young"} if now - facts.written < policy.older else set()
            found |= {version: reasons} if reasons else {}
        return found

    def needed(self, policy: Policy, now: float) -> set[str]:
        """The units that a clean neither deletes nor announces."""
        held = {each for keep in self.keepers.values() if keep.until > now for each in keep.units}
        found = held | {unit for unit in self.units if unit.partition("/caches/")[0] in held}
        for version in self.kept(policy, now):
            found |= {f"versions/{version}", *self.versions[version].units}
        named = {unit for version in self.versions.values() for unit in version.units}
        named |= {f"versions/{version}" for version in self.versions}
        for unit, youngest in self.units.items():
            if unit not in named and now - youngest < policy.grace:
                found.add(unit)
        return found | {unit.partition("/caches/")[0] for unit in found}

    def fate(self, unit: str, policy: Policy, now: float) -> str:
        """``stays``, ``goes`` or ``either``, if no other command runs and the clean ends."""
        if unit in self.needed(policy, now):
            return "stays"
        segment = unit.partition("/caches/")[0]
        if segment != unit and (fate := self.fate(segment, policy, now)) != "stays":
            return fate  # what a segment has goes with it
        if policy.grace == 0 or self.surely.get(unit, now) <= now - policy.grace:
            return "goes"
        is_ripe = any(time <= now - policy.grace for time in self.maybe.get(unit, ()))
        return "either" if is_ripe or unit in self.begun else "stays"

    def cleaned(self, policy: Policy, now: float, *, ended: bool) -> None:
        """Remember what a clean has announced, or perhaps has if it was killed or overlapped."""
        needed = self.needed(policy, now)
        self.begun = set() if ended else self.begun
        for unit in self.units:
            times = self.maybe.setdefault(unit, set())
            ripe = {time for time in times if time <= now - policy.grace}
            if unit in needed:
                self.surely.pop(unit, None)
                times -= ripe if ended else set()  # what it keeps is announced no longer
            else:
                times.add(now)
                self.surely.setdefault(unit, now)
                self.begun |= {unit} if not ended and (ripe or not policy.grace) else set()
        if not ended:
            self.surely.clear()

    def observe(self, units: dict[str, float], versions: Iterable[str]) -> None:
        """Forget what is gone."""
        self.units = units
        self.versions = {version: self.versions[version] for version in versions}
        self.maybe = {unit: times for unit, times in self.maybe.items() if unit in units}
        self.surely = {unit: since for unit, since in self.surely.items() if unit in units}
        self.begun &= units.keys()


def units_of(key: str) -> list[str]:
    """The units that a key is in, the innermost one last."""
    kind, *names = key.split("/")
    if kind not in ("versions", "segments"):
        return []
    whole = f"{kind}/{names[0]}"
    inner = names[names.index("caches") + 1 :][:1] if "caches" in names else []
    return [whole, *(f"{whole}/caches/{cache}" for cache in inner)]
