"""``${VARIABLE}`` and ``${VARIABLE:-default}`` in the strings of a file.

``$$`` is one dollar sign; a dollar sign before anything else is literal. A default is used if the
variable is unset or empty, as in the shell. The value of a variable is always a string: it cannot
add keys or lists. Keys are not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from larder.config.document import Document, KeyPath, dotted
from larder.errors import ConfigError

_TOKEN = re.compile(r"\$\$|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")


class FilledText(str):
    """A string of a file in which a ``${VARIABLE}`` was replaced: it may represent a number."""

    __slots__ = ()


UNREAD = FilledText("file:///unread")
"""Stands for a URL whose variable is not set, where nothing is read from there."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """A string with its variables replaced.

    Attributes:
        text: The result; a missing variable is replaced by nothing.
        variables: Those that are set and were used.
        missing: Those that are not set and have no default.
        filled: Whether there was any variable or default.
    """

    text: str
    variables: tuple[str, ...]
    missing: tuple[str, ...]
    filled: bool = False


def interpolate(text: str, environ: Mapping[str, str]) -> Expansion:
    """Replace the variables in ``text``; ValueError if a ``${`` is not followed by one."""
    found: list[str] = []
    missing: list[str] = []
    filled = False

    def fill(match: re.Match[str]) -> str:
        nonlocal filled
        name, default = match["name"], match["default"]
        if match[0] == "$$":
            return "$"
        if name is None:
            raise ValueError("'${' needs a variable, as in ${NAME} or ${NAME:-default}")
        filled = True
        value = environ.get(name)
        if value is None and default is None:
            missing.append(name)
            return ""
        if default is not None and not value:
            return default
        found.append(name)
        return value or ""

    result = _TOKEN.sub(fill, text)
    return Expansion(result, tuple(dict.fromkeys(found)), tuple(dict.fromkeys(missing)), filled)


@dataclass(slots=True)
class _Walk:
    document: Document
    environ: Mapping[str, str]
    overridden: frozenset[KeyPath]
    unread: frozenset[KeyPath]
    variables: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    missing: dict[str, KeyPath] = field(default_factory=dict)
    unfilled: set[KeyPath] = field(default_factory=set)
    problems: list[ConfigError] = field(default_factory=list)

    def value(self, value: Any, path: KeyPath) -> Any:
        if path in self.overridden:
            return value
        if isinstance(value, dict):
            return {key: self.value(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, (*path, index)) for index, each in enumerate(value)]
        return self.text(value, path) if isinstance(value, str) else value

    def text(self, text: str, path: KeyPath) -> str:
        """Records the problems."""
        try:
            expansion = interpolate(text, self.environ)
        except ValueError as error:
            problem = ConfigError(
                "config.invalid_value",
                f"{dotted(path)}: {error}",
                where=self.document.place(path).where,
                hint="write $$ for a dollar sign",
            )
            self.problems.append(problem)
            self.unfilled.add(path)
            return text
        if path in self.unread and (expansion.missing or not expansion.text):
            return UNREAD
        if expansion.variables:
            self.variables[path] = expansion.variables
        for name in expansion.missing:
            self.missing.setdefault(name, path)
            self.unfilled.add(path)
        return FilledText(expansion.text) if expansion.filled else expansion.text


@dataclass(frozen=True, slots=True)
class Expanded:
    """A document with its variables replaced, as far as possible.

    Attributes:
        problems: ``config.missing_variable``, naming all that are missing; and
            ``config.invalid_value`` for each ``${`` without a variable.
        unfilled: The paths that these concern, whose values mean nothing.
    """

    document: Document
    problems: tuple[ConfigError, ...]
    unfilled: frozenset[KeyPath]


def expand(
    document: Document,
    environ: Mapping[str, str],
    overridden: Iterable[KeyPath] = (),
    *,
    prefix: str = "",
    unread: Iterable[KeyPath] = (),
) -> Expanded:
    """Replace the variables in every string of a document.

    Variables are not needed in paths that --set replaces (``overridden``) and in URLs that nothing
    is read from (``unread``). ``prefix`` is what --set puts before the keys of this file:
    ``cluster.``.
    """
    walk = _Walk(document, environ, frozenset(overridden), frozenset(unread))
    value = walk.value(document.value, ())
    missing = [_missing(document, walk.missing, prefix)] if walk.missing else []
    return Expanded(
        replace(document, value=value, variables=walk.variables),
        (*missing, *walk.problems),
        frozenset(walk.unfilled),
    )


def _missing(document: Document, missing: Mapping[str, KeyPath], prefix: str) -> ConfigError:
    names = sorted(missing, key=lambda name: document.place(missing[name]).line)
    first = missing[names[0]]
    plural = len(names) > 1
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if plural else names[0]
    return ConfigError(
        "config.missing_variable",
        f"environment variable{'s' if plural else ''} {listed} {'are' if plural else 'is'} not set",
        where=document.place(first).where,
        hint=f"export {'them' if plural else 'it'}, or pass --set {prefix}{dotted(first)}=VALUE",
    )
