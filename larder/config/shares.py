"""Everyone's first try at splits by hash, ``{train: 0.9, validation: 0.1}``, and what to write."""

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
_NESTED = ("parts", "fractions", "shares", "weights")
_SEEDS = ("hash", "seed")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def hash_form(splits: Any) -> str:
    """What to write instead of splits that give numbers as if they were globs.

    Args:
        splits: As the file has them.

    Returns:
        ``write splits: {hash: 7, parts: {...}}`` with the user's own names and shares if these can
        be shares; empty if ``splits`` are globs or a keyed hash already.
    """
    if not isinstance(splits, Mapping):
        return ""
    seed = next((splits[key] for key in _SEEDS if _is_number(splits.get(key))), _SEED)
    nested = [splits[key] for key in _NESTED if isinstance(splits.get(key), Mapping)]
    if nested and ("parts" not in splits or "hash" not in splits):
        return _form(seed, _fractions(nested[0]))
    if "parts" in splits:
        return ""
    shares = {key: value for key, value in splits.items() if key not in ("by", *_SEEDS)}
    if not shares or any(_share(value) is None for value in shares.values()):
        return ""
    return _form(seed, _fractions(shares))


def _form(seed: Any, shares: Mapping[str, float] | None) -> str:
    parts = ", ".join(f"{name}: {share:g}" for name, share in (shares or _EXAMPLE).items())
    whole = isinstance(seed, int) and abs(seed) < 10**9
    return f"write splits: {{hash: {seed if whole else _SEED}, parts: {{{parts}}}}}"


def _fractions(shares: Mapping[Any, Any]) -> Mapping[str, float] | None:
    """The shares as fractions of 1; None if they are none, or too many to be shown."""
    found = {str(key): _share(value) for key, value in shares.items()}
    known = {key: share for key, share in found.items() if share is not None and share > 0}
    total = sum(known.values())
    whole = next((whole for whole in (1, 100) if abs(total - whole) < 1e-9 * whole), None)
    if not whole or len(known) > _SHOWN or known.keys() != found.keys():
        return None
    named = all(map(_NAME.fullmatch, known))
    return {key: share / whole for key, share in known.items()} if named else None


def _share(value: Any) -> float | None:
    if isinstance(value, FilledText):  # what a variable holds is not shown
        return 0.0 if _is_number(scalar(value.strip())) else None
    if isinstance(value, str):
        percent = _PERCENT.fullmatch(value.strip())
        return float(percent[1]) if percent else None
    if not _is_number(value):
        return None
    return float(value) if abs(value) <= 10**6 else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
