"""The known names that are closest to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from larder.units import format_names

_LISTED = 12


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Up to ``count`` names of ``known`` that may have been meant, the closest first."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    found = difflib.get_close_matches(name.lower(), folded, n=count, cutoff=0.6)
    return [folded[match] for match in found]


def suggest(name: str, known: Iterable[str], nouns: str) -> str:
    known = list(known)
    near = nearest(name, known, count=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not known:
        return f"there are no {nouns}"
    return f"the {nouns} are {format_names(known, _LISTED)}"
