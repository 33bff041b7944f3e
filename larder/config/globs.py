"""Globs on object keys, compiled to one regular expression.

======  =====================================================================================
``*``   any text within a segment, including none
``**``  any text across segments; ``**/`` at the start of a segment also matches nothing
``?``   one character, not ``/``
``[]``  one of these characters or ranges, or none of them after ``!`` or ``^``; never ``/``
``{}``  one of these alternatives, separated by commas
======  =====================================================================================

Everything else matches itself: upper and lower case differ, a leading dot is not special, and
``[*]`` is a star. A glob matches whole keys. The expressions work in both Python's ``re`` and RE2
(in Arrow), so that keys can be matched one by one or by the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from larder.errors import ConfigError


def compile_globs(globs: Iterable[str]) -> re.Pattern[str] | None:
    """One pattern, for ``fullmatch``, that matches if any of the globs does; None without globs."""
    patterns = [glob_regex(glob) for glob in globs]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else None


def glob_regex(glob: str) -> str:
    """The regular expression, without anchors, that matches the same whole keys as the glob.

    An unclosed ``[`` or ``{``, or a range that is reversed or contains ``/``, is refused with
    ``config.invalid_value``.
    """
    return _Parser(glob).sequence(nested=False)


class _Parser:
    """A recursive descent through one glob."""

    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._segment_start = True

    def sequence(self, *, nested: bool) -> str:
        """Everything up to the end, or inside braces up to a comma or the closing brace."""
        parts: list[str] = []
        while self._at < len(self._glob):
            if nested and self._glob[self._at] in ",}":
                break
            parts.append(self._piece())
        return "".join(parts)

    def _piece(self) -> str:
        char = self._next()
        if char == "*":
            return self._stars()
        if char == "{":
            return self._braces()
        self._segment_start = char == "/"
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._set()
        return re.escape(char)

    def _stars(self) -> str:
        stars = re.compile(r"\**").match(self._glob, self._at)
        assert stars is not None
        self._at = stars.end()
        if not stars[0]:
            self._segment_start = False
            return "[^/]*"
        if self._segment_start and self._glob.startswith("/", self._at):
            self._at += 1
            return "(?:(?s:.*)/)?"
        self._segment_start = False
        return "(?s:.*)"

    def _braces(self) -> str:
        start = self._segment_start
        ends: list[bool] = []
        alternatives: list[str] = []
        while True:
            self._segment_start = start
            alternatives.append(self.sequence(nested=True))
            ends.append(self._segment_start)
            if self._at == len(self._glob):
                raise self._wrong("unclosed {", "write [{] for the character")
            if self._next() == "}":
                break
        # What follows is at the start of a segment only if it is so after each alternative.
        self._segment_start = all(ends)
        return f"(?:{'|'.join(alternatives)})"

    def _set(self) -> str:
        closing = self._glob.find("]", self._at + 1 + (self._glob[self._at : self._at + 1] in "!^"))
        if closing < 0:
            raise self._wrong("unclosed [", "write [[] for the character")
        body, self._at = self._glob[self._at : closing], closing + 1
        negated = body[0] in "!^"
        ranges = "".join(self._ranges(body[1:] if negated else body))
        return f"[^/{ranges}]" if negated else f"[{ranges}]"

    def _ranges(self, body: str) -> Iterable[str]:
        at = 0
        while at < len(body):
            is_range = body[at + 1 : at + 2] == "-" and at + 2 < len(body)
            low, high = body[at], body[at + 2] if is_range else body[at]
            if low > high or low <= "/" <= high:
                reason = "is reversed" if low > high else "contains a /, which only ** matches"
                raise self._wrong(f"a range in [] {reason}", "")
            yield re.escape(low) + (f"-{re.escape(high)}" if is_range else "")
            at += 3 if is_range else 1

    def _next(self) -> str:
        self._at += 1
        return self._glob[self._at - 1]

    def _wrong(self, message: str, hint: str) -> ConfigError:
        return ConfigError("config.invalid_value", message, where=f"glob {self._glob}", hint=hint)
