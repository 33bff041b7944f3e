"""Patterns on keys that say which objects are the parts of one sample: ``masks/{id}.png``.

A pattern is a glob (`larder.config.globs`) with one placeholder, a name in braces. The placeholder
stands for the sample key: any text, also with slashes, but without a dot after its last slash,
because readers end the sample key at the first dot of a base name. After the placeholder, the last
segment has a dot, behind which the extension begins.

What ``*``, ``?``, ``[]`` and ``{,}`` stand for, if they are before the extension, tells several
objects of one pattern apart; ``**``, which is only allowed before the placeholder, does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from larder.config.globs import glob_regex
from larder.errors import ConfigError

_WORD = re.compile(r"\*\*+|\*|\?|\[[!^]?[^\]]*\]|\{[^{}]*\}|/|\.|[^*?\[{/.]+|.", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_ID = r"(?P<id>(?:[^/]+/)*[^/.]+)"
_WITHOUT_DOT = {"*": "[^/.]*", "?": "[^/.]"}


@dataclass(frozen=True, slots=True)
class PartPattern:
    """A compiled pattern.

    Attributes:
        placeholder: The name in braces.
        regex: Matches whole keys, in Python's ``re`` and in RE2; all its groups are named: ``id``
            is the sample key, ``ext`` the extension, ``w0`` and so on what distinguishes objects.
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
    found = _PLACEHOLDER.fullmatch(words[place])
    assert found is not None, "it is one"
    return PartPattern(found[1], regex, wildcards)


def _piece(words: list[str], at: int, *, in_stem: bool) -> str:
    """The regular expression of one wildcard or text before the extension."""
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
