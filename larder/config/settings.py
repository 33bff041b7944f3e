"""``--set key.path=value``: one value of a dataset or cluster file, given on the command line.

A value that begins with ``[``, ``{`` or a quote is YAML; any other is a single plain scalar, so
that ``--set source.include=**/*.JPEG`` and ``--set description="a: b"`` work as expected. An empty
value means null. Variables are left to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from larder.config import yaml
from larder.config.document import Document, KeyPath, Place
from larder.config.secrets import shown
from larder.errors import ConfigError, ProblemsError

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
