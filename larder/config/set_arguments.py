"""The arguments ``--set key.path=value``, which replace values.

A value that begins with ``[``, ``{`` or a quote is YAML; any other is one plain scalar, so that
``--set source.include=**/*.JPEG`` and ``--set description="a: b"`` work as expected. An empty value
means null. Variables are left to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from larder.config.config_document import Document, KeyPath, Position, scalar
from larder.config.urls import shown
from larder.errors import ConfigError, ProblemsError

CLUSTER = "cluster"
"""First key of a setting for the cluster file."""

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Setting(NamedTuple):
    """One --set argument: the path in its file, the value, and the key as given.

    A setting without a value removes the key from the file, so that the key's default counts.
    """

    path: tuple[str, ...]
    value: Any
    key: str
    without_value: bool = False

    @property
    def where(self) -> str:
        """Name of the setting in errors; never shows the value."""
        return f"--set {self.key}"


class SettingsByFile(NamedTuple):
    """All --set arguments, in the order given: of the dataset or command, and of the cluster."""

    dataset: list[Setting]
    cluster: list[Setting]


def parse_settings(arguments: Iterable[str]) -> SettingsByFile:
    """Parse --set arguments; raises a `ProblemsError` with all mistakes."""
    settings = SettingsByFile([], [])
    problems: list[ConfigError] = []
    for argument in arguments:
        try:
            setting = _parse(argument)
        except ConfigError as error:
            problems.append(error)
            continue
        if setting.path[0] == CLUSTER:
            settings.cluster.append(setting._replace(path=setting.path[1:]))
        else:
            settings.dataset.append(setting)
    if problems:
        raise ProblemsError(problems)
    return settings


def _parse(argument: str) -> Setting:
    key, equals, text = argument.partition("=")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key) or key == CLUSTER:
        # A text that is not a key may be a secret.
        name = shown(key) if _KEY.fullmatch(key) and (equals or "." in key) else ""
        message = f"{name or 'the argument'} is not the path of a key, followed by =VALUE"
        hint = "write --set key.path=value, such as --set source.url=s3://bucket/prefix"
        raise ConfigError("config.invalid_setting", message, where="--set", hint=hint)
    value = _value(text.strip(), key)
    return Setting(tuple(key.split(".")), value, key, without_value=not text.strip())


def _value(text: str, key: str) -> Any:
    if not text.startswith(("[", "{", '"', "'")):
        return scalar(text)
    from larder.config.text import parse

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
    """Apply settings to a document; mappings that are missing or null are created.

    A setting that cannot be applied adds an error to ``problems``.
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
    if setting.without_value and key in value and depth + 1 == len(setting.path):
        return {name: each for name, each in value.items() if name != key}
    return {**value, key: _replaced(value.get(key), setting, depth + 1)}


def _without(entries: Any, path: KeyPath) -> dict[KeyPath, Any]:
    return {key: value for key, value in entries.items() if key[: len(path)] != path}
