"""Globs on object keys, and patterns that find the parts of a sample, as regular expressions.

======  =====================================================================================
``*``   any text within a segment, including none
``**``  any text across segments; ``**/`` at the start of a segment also matches nothing
``?``   one character, not ``/``
``[]``  one of these characters or ranges; any other after ``!`` or ``^``; never ``/``
``{}``  one of these alternatives, separated by commas
======  =====================================================================================

Everything else matches itself: upper and lower case differ, a leading dot is not special, and
``[*]`` is a star. A glob matches whole keys. The expressions work in both Python's ``re`` and RE2
(in Arrow), so that keys can be matched one by one or by the column.

A part pattern (``masks/{id}.png``) is a glob with one placeholder, a name in braces. The
placeholder stands for the sample key: any text, also with slashes, but without a dot after its last
slash, because readers end the sample key at the first dot of a base name. After the placeholder,
the last segment has a dot, behind which the extension begins. Wildcards before the extension tell
several objects of one pattern apart, except ``**``, which is only allowed before the placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from larder.errors import ConfigError


def compile_globs(globs: Iterable[str]) -> re.Pattern[str] | None:
    """Compile a pattern for ``fullmatch`` that matches if any glob matches; None without globs."""
    patterns = [glob_regex(glob) for glob in globs]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else None


def glob_regex(glob: str) -> str:
    """Translate a glob into a regular expression, without anchors, for whole keys.

    An unclosed ``[`` or ``{``, a range that is reversed or contains ``/``, and a glob that is
    nested too deeply are refused with ``config.invalid_value``.
    """
    try:
        return _GlobParser(glob).sequence(nested=False)
    except RecursionError:
        message = "nested too deeply"
        raise ConfigError("config.invalid_value", message, where=f"glob {glob[:100]}") from None


class _GlobParser:
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
        # The next character starts a segment only if it does so after every alternative.
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


_WORD = re.compile(r"\*\*+|\*|\?|\[[!^]?[^\]]*\]|\{[^{}]*\}|/|\.|[^*?\[{/.]+|.", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_ID = r"(?P<id>(?:[^/]+/)*[^/.]+)"
_WITHOUT_DOT = {"*": "[^/.]*", "?": "[^/.]"}


class PartPattern(NamedTuple):
    """A compiled pattern.

    Attributes:
        placeholder: The name in braces.
        regex: Matches whole keys, in Python's ``re`` and in RE2; all its groups are named: ``id``
            is the sample key, ``ext`` the extension; ``w0`` and so on distinguish objects.
    """

    placeholder: str
    regex: str
    wildcards: int


def part_pattern(text: str) -> PartPattern:
    """Compile a pattern.

    Refused with ``config.invalid_value``: an invalid glob, not exactly one placeholder, no dot
    after it, or a wildcard right beside it.
    """
    words = _WORD.findall(text)
    places = [at for at, word in enumerate(words) if _PLACEHOLDER.fullmatch(word)]
    if len(places) != 1:
        raise _wrong(text, "the pattern needs exactly one name in braces", "images/{id}.jpg")
    (place,) = places
    beside = [*words[place - 1 : place], *words[place + 1 : place + 2]]
    if any(word[0] in "*?[{" for word in beside):
        raise _wrong(text, "a wildcard right beside the name in braces", "{id}_*.jpg")
    last = max((at + 1 for at, word in enumerate(words) if word == "/"), default=0)
    dots = [at for at in range(max(last, place), len(words)) if words[at] == "."]
    if not dots or dots[0] == len(words) - 1:
        raise _wrong(text, "the last segment needs a dot and an extension", "images/{id}.*")
    if any(word.startswith("**") for word in words[place:]):
        raise _wrong(text, "** after the name in braces", "frames/{id}/*.jpg")
    pieces, wildcards = [], 0
    for at, word in enumerate(words[: dots[0]]):
        piece = _piece(words, at, in_stem=at >= last)
        if at == place:
            piece = _ID
        elif word[0] in "*?[{" and not word.startswith("**"):
            piece = f"(?P<w{wildcards}>{piece})"
            wildcards += 1
        pieces.append(piece)
    ext = glob_regex("".join(words[dots[0] + 1 :]))
    regex = f"^{''.join(pieces)}\\.(?P<ext>{ext})$"
    return PartPattern(words[place].strip("{}"), regex, wildcards)


def with_sample_key(text: str, key: str) -> str:
    """Put a sample key, itself a glob, in place of a pattern's placeholder; returns a glob."""
    return _PLACEHOLDER.sub(lambda _: key, text)


def _piece(words: list[str], at: int, *, in_stem: bool) -> str:
    """Return the regular expression of a wildcard or a text before the extension."""
    word = words[at]
    starts = at == 0 or words[at - 1] == "/"
    if word.startswith("**") and starts and words[at + 1 : at + 2] == ["/"]:
        return "(?:(?s:.*)"  # closed behind the slash
    if word == "/" and at and words[at - 1].startswith("**") and (at == 1 or words[at - 2] == "/"):
        return "/)?"
    return _WITHOUT_DOT[word] if in_stem and word in _WITHOUT_DOT else glob_regex(word)


def _wrong(text: str, message: str, example: str) -> ConfigError:
    hint = f"write it as in {example}"
    return ConfigError("config.invalid_value", message, where=f"pattern {text}", hint=hint)


_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def count_braces(pattern: str) -> int:
    """Return the number of names from `expand_braces`."""
    match = _RANGE.search(pattern)
    return max(0, int(match[2]) - int(match[1]) + 1) if match else 1


def expand_braces(pattern: str) -> list[str]:
    """List the names of a pattern, as a shell: ``a-{08..10}.tar`` gives a-08.tar to a-10.tar.

    A pattern has at most one numeric range; `larder.shards.packing.brace_patterns` makes patterns.
    """
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = match.groups()
    width = len(first) if first.startswith("0") else 0
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [f"{before}{number:0{width}d}{after}" for number in range(int(first), int(last) + 1)]
