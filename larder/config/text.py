"""A file as text: YAML with the line of each value, and what replaces values.

YAML is that of the core schema of YAML 1.2, and nothing that creates objects. Unlike in YAML 1.1,
``1e-3`` is a number, ``no``, ``12:30`` and ``2026-11-21`` are strings, and ``010`` is ten. Keys are
strings as written. Duplicate keys, aliases and tags are refused.
Rules for scalars: https://yaml.org/spec/1.2.2/#103-core-schema

Two things replace values. ``${VARIABLE}`` does so in strings: ``${VARIABLE:-default}`` uses the
default if the variable is unset or empty, as in the shell; ``$$`` is one dollar sign, and a dollar
sign before anything else is literal. The value of a variable is always a string: it cannot add keys
or lists. And ``--set key.path=value`` does: a value that begins with ``[``, ``{`` or a quote is
YAML; any other is one plain scalar, so that ``--set source.include=**/*.JPEG`` and
``--set description="a: b"`` work as expected. An empty value means null. Variables are left to the
shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML, events
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from larder.config.urls import shown
from larder.errors import ConfigError, ProblemsError

MAX_FILE_BYTES = 16_000_000
"""The largest file that is read: about 700,000 pinned classes."""

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a value.

    Attributes:
        where: As errors show it: ``configs/datasets/x.yaml:12`` or ``--set source.url``.
        line: From 1; 0 for a value given by --set.
    """

    where: str
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """Plain mappings, lists and scalars, and where they come from.

    Attributes:
        places: By path; the root ``()`` is always present.
        variables: By the path of a string: the environment variables used in it.
    """

    value: Any
    places: Mapping[KeyPath, Position]
    variables: Mapping[KeyPath, tuple[str, ...]]

    def place(self, path: KeyPath) -> Position:
        """The position of ``path``, or of the nearest value around it that has one."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def dotted(path: KeyPath) -> str:
    """``("nodes", "mounts", 0)`` as ``nodes.mounts[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


# Strings that look like one of these, and their value. Longer digit strings stay strings: Python
# refuses to convert more than 4,300 digits.
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
    """The value of a plain scalar: None, a bool, an int, a float, or the string itself."""
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return convert(text)
    return text


class Build:
    """Turns the events of one file into values, and records the line of each."""

    def __init__(self, name: str, stream: Iterator[events.Event]) -> None:
        self.name = name
        self.stream = stream
        self.places: dict[KeyPath, Position] = {(): Position(f"{name}:1", 1)}

    def place(self, event: events.Event) -> Position:
        line = event.start_mark.line + 1
        return Position(f"{self.name}:{line}", line)

    def refuse(self, event: events.Event, message: str, hint: str = "") -> ConfigError:
        where = self.place(event).where
        return ConfigError("config.invalid_yaml", message, where=where, hint=hint)

    def document(self) -> Any:
        """The only document of the stream; None if it is empty."""
        next(self.stream)
        if isinstance(next(self.stream), events.StreamEndEvent):
            return None
        value = self.value(next(self.stream), ())
        next(self.stream)
        another = next(self.stream)
        if not isinstance(another, events.StreamEndEvent):
            raise self.refuse(another, "another document begins", "write one document per file")
        return value

    def value(self, event: Any, path: KeyPath) -> Any:
        if isinstance(event, events.AliasEvent):
            hint = "quote strings that begin with *, and write repeated values out"
            raise self.refuse(event, "aliases are not supported", hint)
        if event.ctag is not None:
            raise self.refuse(event, "tags are not supported", "quote strings that begin with !")
        if isinstance(event, events.SequenceStartEvent):
            return self.sequence(path)
        if isinstance(event, events.MappingStartEvent):
            return self.mapping(path)
        text = self.text(event)
        return scalar(text) if event.implicit[0] else text

    def text(self, event: Any) -> str:
        """The text of a scalar; JSON writes characters above U+FFFF as a pair of escapes."""
        try:
            return str(event.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = "half of a surrogate pair is not a character"
            raise self.refuse(event, message) from None

    def key(self, event: Any, path: KeyPath) -> str:
        return self.text(event)

    def sequence(self, path: KeyPath) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self.stream), events.SequenceEndEvent):
            inner = (*path, len(values))
            self.places[inner] = self.place(event)
            values.append(self.value(event, inner))
        return values

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self.stream), events.MappingEndEvent):
            if not isinstance(event, events.ScalarEvent):
                raise self.refuse(event, "a key must be a string")
            key = self.key(event, path)
            inner = (*path, key)
            if key in values:
                message = (
                    f"duplicate key {dotted(inner)!r} (first on line {self.places[inner].line})"
                )
                where, hint = self.place(event).where, "keep one of the two"
                raise ConfigError("config.duplicate_key", message, where=where, hint=hint)
            self.places[inner] = self.place(event)
            values[key] = self.value(next(self.stream), inner)
        return values


def parse(text: str, name: str, kind: type[Build] = Build) -> Document:
    """Parse one YAML document; errors call it ``name`` and have the line."""
    build = kind(name, YAML(typ="safe", pure=True).parse(text))
    try:
        return Document(build.document(), build.places, {})
    except RecursionError:
        raise ConfigError("config.invalid_yaml", "nested too deeply", where=name) from None
    except YAMLError as error:
        raise syntax_error(error, name) from None


def read(path: Path) -> Document:
    return parse(file_text(path), str(path))


def syntax_error(error: YAMLError, name: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    where = name if mark is None else f"{name}:{mark.line + 1}"
    if isinstance(error, DuplicateKeyError):
        hint = "keep one of the two"
        return ConfigError("config.duplicate_key", "duplicate key", where=where, hint=hint)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "no reason given"
    # A password that begins with * or & is an alias or an anchor of that name.
    problem = re.sub(r"(alias|anchor|handle) '.*'", r"\1", problem, flags=re.DOTALL)
    hint = ""
    if "'\\t'" in problem:
        hint = "indent with spaces"
    elif "alias" in f"{problem}{getattr(error, 'context', '')}":
        hint = "quote strings that begin with * or &"
    elif problem.startswith("expected ',' or"):
        hint = "inside { } and [ ], quote strings that contain any of { } [ ] ,"
    return ConfigError("config.invalid_yaml", f"not YAML: {problem}", where=where, hint=hint)


def file_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = "" if len(data) > MAX_FILE_BYTES else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("config.unreadable", "not UTF-8 text", where=str(path)) from None
    except OSError as error:
        message = f"cannot be read: {(error.strerror or type(error).__name__).lower()}"
        raise ConfigError("config.unreadable", message, where=str(path)) from None
    if len(data) > MAX_FILE_BYTES:
        message = f"larger than {MAX_FILE_BYTES:,} bytes"
        raise ConfigError("config.unreadable", message, where=str(path))
    return text


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
class ExpandedText:
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
) -> ExpandedText:
    """Replace the variables in every string of a document.

    Variables are not needed in paths that --set replaces (``overridden``) and in URLs that nothing
    is read from (``unread``). ``prefix`` is what --set puts before the keys of this file:
    ``cluster.``.
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
    """One --set argument: the path in its file, the value, and the key as given.

    Without any value, it takes the key out of the file, so that its default counts.
    """

    path: tuple[str, ...]
    value: Any
    key: str
    without_value: bool = False

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
    value = _value(text.strip(), key)
    return Setting(tuple(key.split(".")), value, key, without_value=not text.strip())


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
    if setting.without_value and key in value and depth + 1 == len(setting.path):
        return {name: each for name, each in value.items() if name != key}
    return {**value, key: _replaced(value.get(key), setting, depth + 1)}


def _without(entries: Any, path: KeyPath) -> dict[KeyPath, Any]:
    return {key: value for key, value in entries.items() if key[: len(path)] != path}
