"""Values of a file, with the position of each value and environment variables replaced.

``${VARIABLE}`` is replaced in strings: ``${VARIABLE:-default}`` uses the default if the variable is
unset or empty, as in the shell; ``$$`` is one dollar sign, and a dollar sign before anything else
is literal. The value of a variable is always a string: it cannot add keys or lists.
Rules for scalars: https://yaml.org/spec/1.2.2/#103-core-schema
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from larder.errors import ConfigError

KeyPath = tuple[str | int, ...]


class Position(NamedTuple):
    """The position of a value.

    Attributes:
        where: The position in errors: ``configs/datasets/x.yaml:12`` or ``--set source.url``.
        line: Number of the line, from 1; 0 for a value given by --set.
    """

    where: str
    line: int


class Document(NamedTuple):
    """Plain mappings, lists and scalars, and their positions.

    Attributes:
        places: Positions by path; the root ``()`` is always present.
        variables: Environment variables used in a string, by the path of the string.
    """

    value: Any
    places: Mapping[KeyPath, Position]
    variables: Mapping[KeyPath, tuple[str, ...]]

    def place(self, path: KeyPath) -> Position:
        """Return the position of ``path``, or of the nearest outer value that has a position."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def dotted(path: KeyPath) -> str:
    """Format ``("nodes", "mounts", 0)`` as ``nodes.mounts[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


# Longer digit strings stay strings: Python refuses to convert more than 4,300 digits.
_SCALARS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]{1,1000}"), int),
    (re.compile(r"0o[0-7]{1,1000}"), lambda text: int(text, 8)),
    (re.compile(r"0x[0-9a-fA-F]{1,1000}"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?"), _float),
    (re.compile(r"[-+]?(?:[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"), _float),
)


def scalar(text: str) -> Any:
    """Return the value of a plain scalar: None, a bool, an int, a float, or the string itself."""
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return convert(text)
    return text


_TOKEN = re.compile(r"\$\$|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")


class FilledText(str):
    """A string of a file in which a ``${VARIABLE}`` was replaced: it may represent a number."""

    __slots__ = ()


UNREAD = FilledText("file:///unread")
"""Stands for a URL that is not read and whose variable is not set."""


class Interpolation(NamedTuple):
    """A string with its variables replaced.

    Attributes:
        text: The result; a missing variable is replaced by nothing.
        variables: Names of used variables that are set.
        missing: Names of variables that are not set and have no default.
    """

    text: str
    variables: tuple[str, ...]
    missing: tuple[str, ...]


def interpolate(text: str, environ: Mapping[str, str]) -> Interpolation:
    """Replace the variables in ``text``; ValueError if no variable follows a ``${``."""
    used: dict[str, None] = {}
    missing: dict[str, None] = {}

    def fill(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$$":
            return "$"
        if name is None:
            raise ValueError("'${' needs a variable, as in ${NAME} or ${NAME:-default}")
        value = environ.get(name)
        if default is not None and not value:
            return str(default)
        (missing if value is None else used)[name] = None
        return value or ""

    result = _TOKEN.sub(fill, text)
    filled = _TOKEN.search(text.replace("$$", "")) is not None
    return Interpolation(FilledText(result) if filled else result, tuple(used), tuple(missing))


@dataclass(slots=True)
class ExpandedText:
    """A document with its variables replaced, and the mistakes in variables.

    Attributes:
        problems: ``config.missing_variable``, naming all missing variables; and
            ``config.invalid_value`` for each ``${`` without a variable.
        unfilled: Paths with such a mistake, whose values mean nothing.
    """

    document: Document
    problems: list[ConfigError] = field(default_factory=list)
    unfilled: set[KeyPath] = field(default_factory=set)


def expand(
    document: Document,
    environ: Mapping[str, str],
    overridden: Collection[KeyPath] = (),
    *,
    prefix: str = "",
    unread: Collection[KeyPath] = (),
) -> ExpandedText:
    """Replace the variables in every string of a document.

    Variables are not needed in paths that --set replaces (``overridden``) and in URLs that are not
    read (``unread``). ``prefix`` is the prefix of this file's keys in --set: ``cluster.``.
    """
    expanded = ExpandedText(document)
    variables: dict[KeyPath, tuple[str, ...]] = {}
    missing: dict[str, KeyPath] = {}

    def walk(value: Any, path: KeyPath) -> Any:
        if path in overridden:
            return value
        if isinstance(value, dict):
            return {key: walk(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [walk(each, (*path, index)) for index, each in enumerate(value)]
        return fill(value, path) if isinstance(value, str) else value

    def fill(text: str, path: KeyPath) -> str:
        try:
            string = interpolate(text, environ)
        except ValueError as error:
            message, where = f"{dotted(path)}: {error}", document.place(path).where
            hint = "write $$ for a dollar sign"
            problem = ConfigError("config.invalid_value", message, where=where, hint=hint)
            expanded.problems.append(problem)
            expanded.unfilled.add(path)
            return text
        if path in unread and (string.missing or not string.text):
            return UNREAD
        if string.variables:
            variables[path] = string.variables
        for name in string.missing:
            missing.setdefault(name, path)
            expanded.unfilled.add(path)
        return string.text

    value = walk(document.value, ())
    expanded.document = document._replace(value=value, variables=variables)
    if missing:
        expanded.problems.insert(0, _missing(document, missing, prefix))
    return expanded


def _missing(document: Document, missing: Mapping[str, KeyPath], prefix: str) -> ConfigError:
    names = sorted(missing, key=lambda name: document.place(missing[name]).line)
    first = missing[names[0]]
    plural = "s" if len(names) > 1 else ""
    return ConfigError(
        "config.missing_variable",
        f"environment variable{plural} not set: {', '.join(names)}",
        where=document.place(first).where,
        hint=f"export {'them' if plural else 'it'}, or pass --set {prefix}{dotted(first)}=VALUE",
    )
