"""What replaces values of a file: ``${VARIABLE}`` in its strings, and ``--set key.path=value``.

``${VARIABLE:-default}`` uses the default if the variable is unset or empty, as in the shell; ``$$``
is one dollar sign, and a dollar sign before anything else is literal. The value of a variable is
always a string: it cannot add keys or lists.

A value of --set that begins with ``[``, ``{`` or a quote is YAML; any other is one plain scalar, so
that ``--set source.include=**/*.JPEG`` and ``--set description="a: b"`` work as expected. An empty
value means null. Variables are left to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from larder.config.text import yaml
from larder.config.text.yaml import Document, KeyPath, Place, dotted
from larder.config.urls import shown
from larder.errors import ConfigError, ProblemsError

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


CLUSTER = "cluster"
"""First key of a setting for the cluster file."""

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

_KEYLIKE = re.compile(r"[A-Za-z0-9_. -]*")


@dataclass(frozen=True, slots=True)
class Setting:
    """One --set argument: the path in its file, the value, and the key as given."""

    path: tuple[str, ...]
    value: Any
    key: str

    @property
    def where(self) -> str:
        """How errors name it; never shows the value."""
        return f"--set {self.key}"


def parse_settings(arguments: Iterable[str]) -> tuple[list[Setting], list[Setting]]:
    """The settings of the dataset and those of the cluster, in the order given."""
    settings: list[Setting] = []
    problems: list[ConfigError] = []
    for argument in arguments:
        try:
            settings.append(_parse(argument))
        except ConfigError as error:
            problems.append(error)
    if problems:
        raise ProblemsError(problems)
    dataset = [setting for setting in settings if setting.path[0] != CLUSTER]
    cluster = [
        Setting(setting.path[1:], setting.value, setting.key)
        for setting in settings
        if setting.path[0] == CLUSTER
    ]
    return dataset, cluster


def _parse(argument: str) -> Setting:
    key, equals, text = argument.partition("=")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key):
        raise ConfigError(
            "config.invalid_setting",
            _no_setting(key, bool(equals)),
            where="--set",
            hint="write --set key.path=value, such as --set source.url=s3://bucket/prefix",
        )
    if key == CLUSTER:
        raise ConfigError(
            "config.invalid_setting",
            "cluster is not a key",
            where="--set cluster",
            hint="choose a cluster with --cluster NAME, or set a key of it: cluster.storage.url",
        )
    return Setting(tuple(key.split(".")), _value(text, key), key)


def _no_setting(key: str, has_value: bool) -> str:
    """What is wrong with an argument; a string that is not a key may be a secret: not shown."""
    is_path = _KEY.fullmatch(key) is not None and "." in key
    shown_key = shown(key) if is_path or (has_value and _KEYLIKE.fullmatch(key)) else ""
    if not has_value:
        return f"{shown_key or 'the argument'} is not followed by =value"
    return f"{shown_key or 'what is before ='} is not a key path"


def _value(text: str, key: str) -> Any:
    text = text.strip()
    if not text.startswith(("[", "{", '"', "'")):
        return yaml.scalar(text)
    try:
        return yaml.parse(text, "--set").value
    except ConfigError as error:
        raise ConfigError(
            "config.invalid_setting",
            f"the value is {error.message}",
            where=f"--set {key}",
            hint="in a list, quote strings that contain any of * & { } [ ] ,",
        ) from None


def apply(document: Document, settings: Sequence[Setting]) -> Document:
    """The document with ``settings`` applied; later ones override earlier ones.

    Mappings that a path needs and that are missing or null are created.
    """
    for setting in settings:
        document = _apply(document, setting)
    return document


def _apply(document: Document, setting: Setting) -> Document:
    path: KeyPath = setting.path
    given = Place(setting.where, 0)
    made = {path[:end]: given for end in range(len(path)) if path[:end] not in document.places}
    places = _without(document.places, path) | made | {path: given}
    value = _replaced(document.value, setting, 0)
    return Document(value, places, _without(document.variables, path))


def _replaced(value: Any, setting: Setting, depth: int) -> Any:
    if depth == len(setting.path):
        return setting.value
    if value is None:
        value = {}
    if not isinstance(value, dict):
        within = setting.key.removesuffix("." + ".".join(setting.path[depth:]))
        listed = isinstance(value, list)
        raise ConfigError(
            "config.unknown_key",
            f"{within} is {'a list' if listed else 'a single value'} and has no keys",
            where=setting.where,
            hint=f"set {within} as a whole",
        )
    key = setting.path[depth]
    return {**value, key: _replaced(value.get(key), setting, depth + 1)}


def _without(entries: Any, path: KeyPath) -> dict[KeyPath, Any]:
    return {key: value for key, value in entries.items() if key[: len(path)] != path}
