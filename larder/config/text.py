"""Text of a file as YAML, with the line of each value.

Values follow the core schema of YAML 1.2, and nothing creates objects. Unlike in YAML 1.1,
``1e-3`` is a number, ``no``, ``12:30`` and ``2026-11-21`` are strings, and ``010`` is ten. Keys are
strings as written. Duplicate keys, aliases and tags are refused.

Templates of experiments keep their comments. Some consumers read YAML 1.1 (kubectl, PyYAML), others
YAML 1.2, so a value without quotes has to be the same in both: ``yes``, ``012``, ``1e3`` and dates
are not. Aliases and merges are allowed there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.constructor import DuplicateKeyError, RoundTripConstructor, SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.resolver import implicit_resolvers

from larder.config.config_document import Document, KeyPath, Position, dotted, scalar
from larder.config.urls import secret_at
from larder.errors import ConfigError

MAX_FILE_BYTES = 16_000_000
"""The largest file that is read: about 700,000 pinned classes."""

_FLOAT = "tag:yaml.org,2002:float"
_BOOL = "tag:yaml.org,2002:bool"
_NO_FLOAT_IN_1_1 = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*[eE][0-9]+|[0-9]+[eE][-+]?[0-9]+)")
"""No floats in YAML 1.1, which needs a point and the exponent's sign; ruamel.yaml accepts them."""


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
        """Read the only document of the stream; None if it is empty."""
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
        """Return the text of a scalar; JSON writes characters above U+FFFF as a pair of escapes."""
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
    """Parse a YAML document; errors show ``name`` and the line."""
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
    if isinstance(error, DuplicateKeyError):  # its problem has both values
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
        message, hint = "not UTF-8 text", "save it as UTF-8"
        raise ConfigError("config.unreadable", message, where=str(path), hint=hint) from None
    except OSError as error:
        message = f"cannot be read: {(error.strerror or type(error).__name__).lower()}"
        hint = "put a file there that this user may read"
        raise ConfigError("config.unreadable", message, where=str(path), hint=hint) from None
    if len(data) > MAX_FILE_BYTES:
        message = f"larger than {MAX_FILE_BYTES:,} bytes"
        raise ConfigError("config.unreadable", message, where=str(path))
    return text


class _TemplateBuild(Build):
    """Refuses values that consumers would read differently, or not at all.

    Unlike in other files, aliases are allowed.
    """

    def __init__(self, name: str, stream: Any) -> None:
        super().__init__(name, stream)
        self.open: list[str | None] = []

    def value(self, event: Any, path: KeyPath) -> Any:
        if isinstance(event, events.AliasEvent):
            if event.anchor in self.open:
                raise self.refuse(event, f"{dotted(path)} contains itself", "write it out")
            return None
        if isinstance(event, events.ScalarEvent) and event.implicit[0]:
            self.check(event, path)
        self.open.append(event.anchor)
        value = super().value(event, path)
        self.open.pop()
        _refuse_secret(_as_line(path, value), self.name, self.place(event).line)
        return value

    def key(self, event: Any, path: KeyPath) -> str:
        key = self.text(event)
        if event.implicit[0] and _kind_in_1_1(key) == "timestamp":  # others are quoted when written
            self.check(event, (*path, key))
        return key

    def check(self, event: Any, path: KeyPath) -> None:
        value, old = scalar(event.value), _kind_in_1_1(event.value)
        kind = "null" if value is None else type(value).__name__
        if kind != old:
            message = f"{dotted(path)} is a !!{kind} in YAML 1.2, and a !!{old} in YAML 1.1,"
            message += " which kubectl and PyYAML read"
            hint = "put a string in quotes; write what is none as true, 10, 0.5 or 1.0e-3"
            raise self.refuse(event, message, hint)


def _as_line(path: KeyPath, value: Any) -> str:
    """Write a value as a command or ``key: value``, however many lines of the file it has."""
    if isinstance(value, list):
        return " ".join(str(item) for item in value if not isinstance(item, (dict, list)))
    if isinstance(value, dict):  # a variable, in lists of them
        fields = {key.lower(): item for key, item in value.items()}
        return f"{fields.get('name')}: {fields.get('value')}"
    return f"{dotted(path)}: {value}"


def _refuse_secret(text: str, name: str, first_line: int = 1) -> None:
    line = secret_at(text)
    if line is not None:
        message, where = "the template must not contain a secret", f"{name}:{first_line + line}"
        hint = "name a role, a file or a Secret of the cluster that training reads it from"
        raise ConfigError("config.secret", message, where=where, hint=hint)


def template_text(path: Path) -> str:
    """Read a file; ``config.secret``: a config made from it would contain a secret."""
    text = file_text(path)
    _refuse_secret(text, str(path))
    return text


def _kind_in_1_1(text: str) -> str:
    if _NO_FLOAT_IN_1_1.fullmatch(text):
        return "str"
    for versions, tag, pattern, first in implicit_resolvers:
        if (1, 1) in versions and text[:1] in first and pattern.match(text):
            kind = str(tag.rpartition(":")[2])
            return "int, octal" if kind == "int" and re.match("[-+]?0[0-7_]", text) else kind
    return "str"


class _WrittenFloat(float):
    """A number as it was written: a float does not have the digits."""

    text: str


class _Constructor(RoundTripConstructor):
    def written_float(self, node: ScalarNode) -> _WrittenFloat:
        number = _WrittenFloat(scalar(node.value))
        number.text = node.value
        return number


_Constructor.add_constructor(_FLOAT, _Constructor.written_float)
_Constructor.add_constructor(_BOOL, SafeConstructor.construct_yaml_bool)  # with an anchor: no bool


class Representer(RoundTripRepresenter):
    """Writes values that `round_trip` has read."""

    def written_float(self, number: _WrittenFloat) -> ScalarNode:
        node: ScalarNode = self.represent_scalar(_FLOAT, number.text)
        return node


Representer.add_representer(_WrittenFloat, Representer.written_float)


def round_trip() -> YAML:
    """Make a reader and writer of YAML with its comments and with lines of any length."""
    yaml = YAML()
    yaml.width = 10**6
    yaml.preserve_quotes = True
    yaml.Constructor, yaml.Representer = _Constructor, Representer
    return yaml


def read_template(path: Path) -> Any:
    """Read a file with its comments and aliases, for `round_trip` to write."""
    text = template_text(path)
    parse(text, str(path), _TemplateBuild)
    try:
        return round_trip().load(text)
    except YAMLError as error:
        raise syntax_error(error, str(path)) from None
    except (ValueError, RecursionError):
        message = "a value is not valid, or nested too deeply"
        raise ConfigError("config.invalid_yaml", message, where=str(path)) from None
