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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from larder.config.text.yaml import Document, KeyPath, Position, dotted, parse, scalar
from larder.config.urls import shown
from larder.errors import ConfigError, ProblemsError

CLUSTER = "cluster"
"""First key of a setting for the cluster file."""

_TOKEN = re.compile(r"\$\$|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class FilledText(str):
    """A string of a file in which a ``${VARIABLE}`` was replaced: it may represent a number."""

    __slots__ = ()


UNREAD = FilledText("file:///unread")
"""Stands for a URL whose variable is not set, where nothing is read from there."""


@dataclass(frozen=True, slots=True)
class Interpolation:
    """A string with its variables replaced.

    Attributes:
        text: The result; a missing variable is replaced by nothing.
        variables: Those that are set and were used.
        missing: Those that are not set and have no default.
    """

    text: str
    variables: tuple[str, ...]
    missing: tuple[str, ...]


def interpolate(text: str, environ: Mapping[str, str]) -> Interpolation:
    """Replace the variables in ``text``; ValueError if a ``${`` is not followed by one."""
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
class Expanded:
    """A document with its variables replaced, as far as possible.

    Attributes:
        problems: ``config.missing_variable``, naming all that are missing; and
            ``config.invalid_value`` for each ``${`` without a variable.
        unfilled: The paths that these concern, whose values mean nothing.
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
) -> Expanded:
    """Replace the variables in every string of a document.

    Variables are not needed in paths that --set replaces (``overridden``) and in URLs that nothing
    is read from (``unread``). ``prefix`` is what --set puts before the keys of this file:
    ``cluster.``.
    """
    expanded = Expanded(document)
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
    expanded.document = replace(document, value=value, variables=variables)
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


class SettingsByFile(NamedTuple):
    """All --set arguments, in the order given: of the dataset or command, and of the cluster."""

    dataset: list[Setting]
    cluster: list[Setting]


def parse_settings(arguments: Iterable[str]) -> SettingsByFile:
    """Several mistakes are a `ProblemsError` with all of them."""
    settings = SettingsByFile([], [])
    problems: list[ConfigError] = []
    for argument in arguments:
        try:
            setting = _parse(argument)
        except ConfigError as error:
            problems.append(error)
            continue
        if setting.path[0] == CLUSTER:
            settings.cluster.append(replace(setting, path=setting.path[1:]))
        else:
            settings.dataset.append(setting)
    if problems:
        raise ProblemsError(problems)
    return settings


def _parse(argument: str) -> Setting:
    key, equals, text = argument.partition("=")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key) or key == CLUSTER:
        # What is not a key may be a secret.
        name = shown(key) if _KEY.fullmatch(key) and (equals or "." in key) else ""
        message = f"{name or 'the argument'} is not the path of a key, followed by =VALUE"
        hint = "write --set key.path=value, such as --set source.url=s3://bucket/prefix"
        raise ConfigError("config.invalid_setting", message, where="--set", hint=hint)
    return Setting(tuple(key.split(".")), _value(text.strip(), key), key)


def _value(text: str, key: str) -> Any:
    if not text.startswith(("[", "{", '"', "'")):
        return scalar(text)
    try:
        return parse(text, "--set").value
    except ConfigError as error:
        raise ConfigError(
            "config.invalid_setting",
            f"the value is {error.message}",
            where=f"--set {key}",
            hint="in a list, quote strings that contain any of * & { } [ ] ,",
        ) from None


def apply(document: Document, settings: Iterable[Setting], problems: list[ConfigError]) -> Document:
    """The document with settings applied; mappings that are missing or null are created.

    What cannot be applied becomes one of the ``problems``.
    """
    for setting in settings:
        try:
            document = _applied(document, setting)
        except ConfigError as error:
            problems.append(error)
    return document


def _applied(document: Document, setting: Setting) -> Document:
    path: KeyPath = setting.path
    place = Position(setting.where, 0)
    made = {path[:end]: place for end in range(len(path)) if path[:end] not in document.places}
    places = _without(document.places, path) | made | {path: place}
    value = _replaced(document.value, setting, 0)
    return Document(value, places, _without(document.variables, path))


def _replaced(value: Any, setting: Setting, depth: int) -> Any:
    if depth == len(setting.path):
        return setting.value
    if value is None:
        value = {}
    if not isinstance(value, dict):
        within = setting.key.removesuffix("." + ".".join(setting.path[depth:]))
        message, hint = f"{within} has no keys", f"set {within} as a whole"
        raise ConfigError("config.unknown_key", message, where=setting.where, hint=hint)
    key = setting.path[depth]
    return {**value, key: _replaced(value.get(key), setting, depth + 1)}


def _without(entries: Any, path: KeyPath) -> dict[KeyPath, Any]:
    return {key: value for key, value in entries.items() if key[: len(path)] != path}
