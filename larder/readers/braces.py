"""Brace patterns, expanded as in a shell and in WebDataset."""

from __future__ import annotations

import re
from collections.abc import Iterator

_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand(pattern: str) -> list[str]:
    """The names that a pattern expands to, in order.

    ``a-{00..02}.tar`` gives ``a-00.tar``, ``a-01.tar``, ``a-02.tar``; ``{{0..1},5}`` gives 0, 1,
    5. Braces that are not balanced, or contain neither a range nor a comma, are literal.
    """
    return list(_expand(pattern))


def _expand(pattern: str) -> Iterator[str]:
    for start in (at for at, character in enumerate(pattern) if character == "{"):
        end = _closing(pattern, start)
        choices = _choices(pattern[start + 1 : end]) if end else None
        if end and choices is not None:
            tails = list(_expand(pattern[end + 1 :]))
            for choice in choices:
                yield from (pattern[:start] + choice + tail for tail in tails)
            return
    yield pattern


def _closing(pattern: str, start: int) -> int:
    depth = 0
    for at in range(start, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[at], 0)
        if depth == 0:
            return at
    return 0


def _choices(body: str) -> list[str] | None:
    if match := _RANGE.fullmatch(body):
        first, last = match.groups()
        padded = any(len(bound) > 1 and bound.startswith("0") for bound in (first, last))
        width = max(len(first), len(last)) if padded else 0
        return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    parts = _split(body)
    return [name for part in parts for name in _expand(part)] if len(parts) > 1 else None


def _split(body: str) -> list[str]:
    parts, depth = [""], 0
    for character in body:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
