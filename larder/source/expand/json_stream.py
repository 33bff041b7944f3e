"""Reads a JSON object of long arrays one element at a time, in bounded memory.

Annotation files have hundreds of megabytes, in a few arrays of small objects. What is in memory is
one element, and what has been read around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, TextIO

from larder.errors import ConfigError

MOST_CHARACTERS = 64 * 1024**2
"""Maximum length of one element."""

_STEP = 1024**2
_SPACE = re.compile(r"[ \t\r\n]*")


def parse_json(text: str, where: str) -> Any:
    """Parse a JSON value; NaN or an infinity, which JSON has not, is ``config.annotations`` too."""
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise _not_json(str(error), where) from None
    except RecursionError:
        raise _not_json("it is nested too deeply", where) from None


class Element(NamedTuple):
    """An element of an array, with the key of the array and its text as it is in the file."""

    array: str
    value: Any
    text: str


def elements(file: TextIO, where: str) -> Iterator[Element]:
    """The elements of the arrays that are values of a JSON object; other values are left out.

    ``config.annotations``: not JSON, not an object, or an element that is too long.
    """
    return _Scanner(file, where).elements()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _not_json(reason: str, where: str) -> ConfigError:
    return ConfigError("config.annotations", f"not valid JSON: {reason}", where=where)


class _Scanner:
    """A text that is read piece by piece, and the place in it."""

    def __init__(self, file: TextIO, where: str) -> None:
        self._file = file
        self._where = where
        self._text = ""
        self._at = 0
        self._before = 0
        self._ended = False

    def elements(self) -> Iterator[Element]:
        self._expect("{")
        first = True
        while self._next() != "}":
            if not first:
                self._expect(",")
            first = False
            key, _ = self._value()
            if not isinstance(key, str):
                raise self._wrong("expected a key")
            self._expect(":")
            if self._next() == "[":
                yield from (Element(key, *found) for found in self._array())
            else:
                self._value()
        self._expect("}")
        if self._next():
            raise self._wrong("something follows its end")

    def _array(self) -> Iterator[tuple[Any, str]]:
        self._expect("[")
        first = True
        while self._next() != "]":
            if not first:
                self._expect(",")
            first = False
            yield self._value()
        self._expect("]")

    def _next(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None, "it matches anywhere"
            self._at = found.end()
            if self._at < len(self._text) or not self._fill():
                return self._text[self._at : self._at + 1]

    def _expect(self, char: str) -> None:
        if self._next() != char:
            raise self._wrong(f"expected {char}")
        self._at += 1

    def _value(self) -> tuple[Any, str]:
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise self._wrong("it is nested too deeply") from None
            except ValueError as error:
                if not self._fill():
                    raise self._wrong(str(error).partition(":")[0]) from None
                continue
            # A number or a word at the end of what was read may go on.
            if end < len(self._text) or not self._fill():
                text = self._text[self._at : end]
                self._at = end
                return value, text

    def _fill(self) -> bool:
        """Read more; false at the end."""
        if self._ended:
            return False
        if len(self._text) - self._at > MOST_CHARACTERS:
            raise self._wrong(f"an element of more than {MOST_CHARACTERS:,} characters")
        more = self._file.read(max(_STEP, len(self._text) - self._at))
        self._before += self._at
        self._text, self._at = self._text[self._at :] + more, 0
        self._ended = not more
        return bool(more)

    def _wrong(self, reason: str) -> ConfigError:
        return _not_json(f"{reason} at character {self._before + self._at:,}", self._where)
