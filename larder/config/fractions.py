"""Likely mistakes in splits by hash, ``{train: 0.9, validation: 0.1}``, and the correct form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from larder.config.interpolate import FilledText
from larder.config.yaml import scalar

__all__ = ["hash_form"]

_EXAMPLE = {"train": 0.9, "validation": 0.1}
_SEED = 7
_SHOWN = 5
_NESTED = ("fractions", "parts", "shares", "weights")
_SEEDS = ("hash", "seed")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def hash_form(splits: Any) -> str:
    """The correct form of splits that give numbers where globs are expected.

    Args:
        splits: As the file has them.

    Returns:
        ``write splits: {by: hash, seed: 7, fractions: {...}}``, with the user's own names and
        fractions if they can be understood; empty if ``splits`` are globs or a seeded hash already.
    """
    if not isinstance(splits, Mapping):
        return ""
    by_hash = splits.get("by") == "hash"
    if "by" in splits and "fractions" in splits:
        return ""
    seed = next((splits[key] for key in _SEEDS if _is_number(splits.get(key))), None)
    nested = [splits[key] for key in _NESTED if isinstance(splits.get(key), Mapping)]
    given = nested[0] if nested else {k: v for k, v in splits.items() if k not in ("by", *_SEEDS)}
    if not given:
        return "" if seed is None or by_hash else _form(seed, None)
    if not nested and any(_fraction(value) is None for value in given.values()):
        return ""
    return _form(seed, _fractions(given))


def _form(seed: Any, fractions: Mapping[str, float] | None) -> str:
    named = ", ".join(f"{name}: {value:g}" for name, value in (fractions or _EXAMPLE).items())
    small = isinstance(seed, int) and abs(seed) < 10**9
    return f"write splits: {{by: hash, seed: {seed if small else _SEED}, fractions: {{{named}}}}}"


def _fractions(given: Mapping[Any, Any]) -> Mapping[str, float] | None:
    """What was given as fractions of 1; None if it cannot be read so, or is too long to show."""
    found = {str(key): _fraction(value) for key, value in given.items()}
    known = {key: value for key, value in found.items() if value is not None and value > 0}
    total = sum(known.values())
    whole = next((whole for whole in (1, 100) if abs(total - whole) < 1e-9 * whole), None)
    if not whole or len(known) > _SHOWN or known.keys() != found.keys():
        return None
    named = all(map(_NAME.fullmatch, known))
    return {key: value / whole for key, value in known.items()} if named else None


def _fraction(value: Any) -> float | None:
    if isinstance(value, FilledText):  # the value of a variable is not shown
        return 0.0 if _is_number(scalar(value.strip())) else None
    if isinstance(value, str):
        percent = _PERCENT.fullmatch(value.strip())
        return float(percent[1]) if percent else None
    if not _is_number(value):
        return None
    return float(value) if abs(value) <= 10**6 else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
