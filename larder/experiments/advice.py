"""Rules for the delivery of data to training, each with its source. Pure.

A rule refuses or prefers a delivery, or only notes a fact. Possible deliveries come before
impossible ones; among possible deliveries, the first rule that prefers a delivery wins, then the
order in which the consumer lists its deliveries. If sources contradict each other, the sentence
states the correct fact; docs/how-to/choosing-a-delivery.md has the table.
"""

from __future__ import annotations

from typing import NamedTuple

from larder.config.models.cluster import Limits
from larder.errors import ConfigError
from larder.experiments.facts import GB, Facts, traffic
from larder.experiments.rules import Fired, fired_rules


class Option(NamedTuple):
    """A delivery: whether it is possible, and its cost.

    ``startup_seconds`` is the time until the first sample can be read. ``moved_bytes`` and ``usd``
    cover all reads from the storage by all epochs, trials and nodes; ``usd`` is None if a price is
    not known.
    """

    delivery: str
    fired: tuple[Fired, ...]
    startup_seconds: float
    moved_bytes: float
    usd: float | None
    disk_bytes: float

    @property
    def possible(self) -> bool:
        return not any(fired.effect == "refuse" for fired in self.fired)

    @property
    def deciding(self) -> Fired:
        """The rule that counts: the first that refuses it, else the first that prefers it."""
        order = ("refuse", "prefer", "note")
        return min(self.fired, key=lambda fired: order.index(fired.effect))


class Choices(NamedTuple):
    """The deliveries of a consumer, the best first, and notes on all of them."""

    options: tuple[Option, ...]
    notes: tuple[Fired, ...] = ()

    def choose(self, requested: str, *, where: str) -> Option:
        """Choose the first possible delivery for ``auto``, or the requested delivery.

        Raises:
            ConfigError: ``config.invalid_value``: nothing is possible, the requested delivery is
                not, or the consumer does not have it.
        """
        names = [option.delivery for option in self.options]
        unasked = {"data_layer"} - {requested}  # caches of functions: auto does not take it
        possible = [option for option in self.options if option.possible]
        possible = [option for option in possible if option.delivery not in unasked]
        if requested not in ("auto", *names):
            message = f"the consumer has no delivery {requested}"
            hint = f"set it to auto, or to one of {', '.join(names)}"
            raise ConfigError(
                "config.invalid_value", message, where="experiment.delivery", hint=hint
            )
        if not possible:
            refused = [option for option in self.options if not option.possible]
            reasons = "; ".join(f"{each.delivery}: {_reasons(each)}" for each in refused)
            message, hint = f"no delivery is possible: {reasons}", "change one of these"
            if len(refused) < len(names):
                hint += ", or name data_layer, for functions that it caches"
            raise ConfigError("config.invalid_value", message, where=where, hint=hint)
        chosen = next((each for each in self.options if each.delivery == requested), possible[0])
        if not chosen.possible:
            message = f"delivery {requested} is not possible: {_reasons(chosen)}"
            hint = f"set experiment.delivery to auto, which is {possible[0].delivery}"
            raise ConfigError("config.invalid_value", message, where=where, hint=hint)
        return chosen


def _reasons(option: Option) -> str:
    refused = [fired for fired in option.fired if fired.effect == "refuse"]
    return "; ".join(f"{each.sentence[:-1]} ({each.rule}, {each.source})" for each in refused)


def advise(facts: Facts, limits: Limits) -> Choices:
    """Return every delivery of the consumer, in the order of preference."""
    fired = tuple(fired_rules(facts, limits))
    preferred = [each.delivery for each in fired if each.effect == "prefer"]
    preferred = [name for name in preferred if name not in facts.uncertain]
    # Deliveries come last that may be too large with the model's code, or may not work.
    others = sorted(facts.deliveries, key=lambda name: name in {"inline", *facts.uncertain})
    order = list(dict.fromkeys([*preferred, *others]))
    options = [
        _option(facts, name, tuple(each for each in fired if each.delivery == name))
        for name in order
        if name in facts.deliveries
    ]
    notes = tuple(each for each in fired if not each.delivery)
    return Choices(tuple(sorted(options, key=lambda option: not option.possible)), notes)


def _option(facts: Facts, delivery: str, fired: tuple[Fired, ...]) -> Option:
    taken, usd = traffic(facts, delivery), None
    if facts.usd_per_gb is not None:
        # Data that is submitted with code is read once, when the config is emitted.
        charged = facts.copy_bytes if delivery == "inline" else taken.moved_bytes
        usd = taken.requests * facts.usd_per_request + facts.usd_per_gb * charged / GB
    return Option(delivery, fired, taken.startup_seconds, taken.moved_bytes, usd, taken.disk_bytes)
