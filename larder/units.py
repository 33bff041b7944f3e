"""Bytes, rates, durations and names, parsed from and formatted for people, in SI and IEC units."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

WIDTH = 80
"""Width of lines for people, in columns."""

_NUMBER = re.compile(r"(?:[0-9.,]+(?: [kMGT]?B)?)?")
_LAST_SECOND = 253_402_300_799
_SUGGESTED = 12
_CHANGES = ("added", "changed", "relabelled", "moved", "removed", "unchanged")
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _UNITS[f"{_letter}B"] = 1000**_power
    _UNITS[f"{_letter}IB"] = 1024**_power

_QUANTITY = re.compile(r"\s*([0-9][0-9_,]{0,99}(?:\.[0-9]{1,99})?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: int | str) -> int:
    """Parse a number of bytes, at least 0, or a string such as ``150 MB`` or ``1.5GiB``."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected bytes such as 150 MB, not {value!r}")
    if isinstance(value, int):
        if value < 0:
            raise ValueError("a number of bytes cannot be negative")
        return value
    match = _QUANTITY.fullmatch(value)
    unit = match[2].upper() if match else None
    if match is None or unit not in _UNITS:
        raise ValueError(f"expected bytes such as 150 MB or 128 MiB, not {value!r}")
    number = match[1].replace(",", "").replace("_", "")
    return round(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]


def format_bytes(count: float) -> str:
    """Format ``1536000`` as ``1.5 MB``: decimal units, at most three figures."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5 or unit == "TB":
            digits = 0 if unit == "B" or abs(count) >= 99.95 else 1
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def format_count(count: int, noun: str) -> str:
    """Format ``1797, "sample"`` as ``1,797 samples``."""
    plural = noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def format_amount(amount: Mapping[str, int], noun: str = "object") -> str:
    """Format ``count`` and ``bytes`` of a document as ``12 objects, 3.4 MB``."""
    return f"{format_count(amount['count'], noun)}, {format_bytes(amount['bytes'])}"


def format_changes(counts: Mapping[str, int]) -> str:
    """Format numbers of samples by kind as ``2 added, 10 unchanged``, without zeros."""
    return ", ".join(f"{counts[kind]:,} {kind}" for kind in _CHANGES if counts.get(kind))


def format_growth(growth: Mapping[str, Any]) -> str:
    """Format the field ``growth`` of a document: ``2 added, 10 unchanged, since version ID``."""
    return f"{format_changes(growth['samples'])}, since version {growth['previous']}"


def format_names(names: Sequence[str], most: int, *, total: int | None = None) -> str:
    """``a, b, c and 7 more`` of ``total`` names, whose first ``most + 1`` at least are given."""
    count = len(names) if total is None else total
    if count <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {count - most:,} more"


def format_classes(names: Sequence[str], total: int) -> str:
    """Format the first classes with their numbers: ``12: 0 = ant, 1 = bee and 10 more``."""
    shown = ", ".join(f"{number} = {name}" for number, name in enumerate(names))
    more = f" and {total - len(names):,} more" if total > len(names) else ""
    return f"{total:,}: {shown}{more}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of ``names``, ignoring case; None if no name is similar."""
    folded: dict[str, str] = {}
    for candidate in names:
        folded.setdefault(candidate.lower(), candidate)
    matches = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def suggest(name: str, names: Iterable[str], nouns: str) -> str:
    names = list(names)
    if near := nearest(name, names):
        return f"did you mean {near}?"
    if not names:
        return f"there are no {nouns}"
    return f"the {nouns} are {format_names(names, _SUGGESTED)}"


def format_seconds(seconds: float) -> str:
    """Format a duration as ``0.4 s``, ``12 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_time(microseconds: int) -> str:
    """Format microseconds since 1970 UTC as ``2026-11-27T20:18:26Z``, at most the end of 9999."""
    seconds = min(microseconds // 1_000_000, _LAST_SECOND)
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of texts in columns, numbers to the right; the first row is the head."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(map(_NUMBER.fullmatch, column[1:])) for column in columns]
    lines = []
    for row in rows:
        cells = zip(row, widths, right, strict=True)
        line = (cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells)
        lines.append("  ".join(line).rstrip())
    return lines


def warning_lines(document: Mapping[str, Any]) -> list[str]:
    rows = (row_lines("warning", [warning["message"]]) for warning in document.get("warnings", ()))
    return [line for row in rows for line in row]


def wrapped(text: str, first: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def row_lines(name: str, texts: Sequence[str]) -> list[str]:
    """Format a name, followed by texts that each start a new line."""
    lines: list[str] = []
    for text in texts:
        lines += wrapped(text, f"  {'' if lines else name:<8} ", " " * 13)
    return lines
