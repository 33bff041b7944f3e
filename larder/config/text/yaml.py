"""YAML with line numbers: the core schema of YAML 1.2, and nothing that creates objects.

Unlike in YAML 1.1, ``1e-3`` is a number, ``no``, ``12:30`` and ``2026-11-21`` are strings, and
``010`` is ten. Keys are always strings. Duplicate keys are an error. Anchors, aliases and the merge
key ``<<`` work; custom tags do not.
Rules for scalars: https://yaml.org/spec/1.2.2/#103-core-schema
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from larder.config.urls import shown
from larder.errors import ConfigError

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
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
    places: Mapping[KeyPath, Place]
    variables: Mapping[KeyPath, tuple[str, ...]]

    def place(self, path: KeyPath) -> Place:
        """The position of ``path``, or of the nearest value around it that has one."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def dotted(path: KeyPath) -> str:
    """``("nodes", "mounts", 0)`` as ``nodes.mounts[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


MAX_FILE_BYTES = 16_000_000
"""The largest file that is read: about 700,000 pinned classes."""

_MAX_COPIED = 100_000
"""How much aliases may repeat: values, plus the characters of strings in hundreds."""

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


# Strings that look like one of these, and their value. Longer digit strings stay strings: Python
# refuses to convert more than 4,300 digits.
_SCALARS: tuple[tuple[str, re.Pattern[str], Callable[[str], Any]], ...] = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), lambda text: None),
    (
        "bool",
        re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
        lambda text: text.lower() == "true",
    ),
    ("int", re.compile(r"[-+]?[0-9]{1,1000}\Z"), int),
    ("int", re.compile(r"0o[0-7]{1,1000}\Z"), lambda text: int(text, 8)),
    ("int", re.compile(r"0x[0-9a-fA-F]{1,1000}\Z"), lambda text: int(text, 16)),
    (
        "float",
        re.compile(
            r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)\Z"
            r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
        ),
        _float,
    ),
)


def scalar(text: str) -> Any:
    """The value of a plain scalar: None, a bool, an int, a float, or the string itself."""
    for _, pattern, convert in _SCALARS:
        if pattern.match(text):
            return convert(text)
    return text


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the implicit types of YAML 1.2 instead of 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


for _kind, _pattern, _ in _SCALARS:
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", _pattern, None)
_Loader.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])


class _Build:
    """Turns the nodes of one file into values, and records the line of each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[KeyPath, Place] = {(): Place(f"{name}:1", 1)}
        self.open: set[int] = set()
        self.seen: set[int] = set()
        self.copied = 0

    def where(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def refuse(self, node: yaml.Node, message: str) -> ConfigError:
        return ConfigError("config.invalid_yaml", message, where=self.where(node))

    def note(self, path: KeyPath, node: yaml.Node) -> None:
        self.places[path] = Place(self.where(node), node.start_mark.line + 1)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.count(node)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            raise self.refuse(node, "an alias refers to a value that contains it")
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return self.sequence(node, path)
            assert isinstance(node, yaml.MappingNode)
            return self.mapping(node, path)
        finally:
            self.open.discard(id(node))

    def count(self, node: yaml.Node) -> None:
        """Refuse aliases of aliases, of which a few lines expand to more than memory holds."""
        if id(node) not in self.seen:
            self.seen.add(id(node))
            return
        self.copied += 1 + len(node.value) // 100
        if self.copied > _MAX_COPIED:
            raise ConfigError(
                "config.invalid_yaml",
                f"aliases repeat more than {_MAX_COPIED:,} values",
                where=self.where(node),
                hint="write the values out, or use fewer aliases",
            )

    def scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return self.text(node)
        if kind not in {known for known, _, _ in _SCALARS}:
            raise self.refuse(node, f"the tag {_short(node.tag)} is not supported")
        value = scalar(node.value)
        if value is not None and type(value).__name__ != kind:
            raise self.refuse(node, f"the value does not fit its tag {_short(node.tag)}")
        return value

    def text(self, node: yaml.ScalarNode) -> str:
        """The text of a scalar; JSON writes characters above U+FFFF as a pair of escapes."""
        try:
            return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self.refuse(node, "half of a surrogate pair is not a character") from None

    def sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        if node.tag != f"{_TAG}seq":
            raise self.refuse(node, f"the tag {_short(node.tag)} is not supported")
        for index, item in enumerate(node.value):
            self.note((*path, index), item)
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        if node.tag != f"{_TAG}map":
            raise self.refuse(node, f"the tag {_short(node.tag)} is not supported")
        values: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                values.update(self.merged(value, path))
        own: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != _MERGE:
                name = self.key(key, path, own)
                self.note((*path, name), key)
                own[name] = self.value(value, (*path, name))
        return values | own

    def merged(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        """The values of a merge key; earlier mappings take precedence."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        values: dict[str, Any] = {}
        for each in reversed(nodes):
            if not isinstance(each, yaml.MappingNode):
                raise self.refuse(node, "<< takes a mapping or a list of mappings")
            values.update(self.value(each, path))
        return values

    def key(self, node: yaml.Node, path: KeyPath, own: dict[str, Any]) -> str:
        """A key of a mapping; refuses duplicates."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.refuse(node, "a key must be a string")
        name = self.text(node)
        if name in own:
            first = self.places[(*path, name)].line
            raise ConfigError(
                "config.duplicate_key",
                f"duplicate key {dotted((*path, name))!r} (first on line {first})",
                where=self.where(node),
                hint="keep one of the two",
            )
        return name


def _short(tag: str) -> str:
    """A tag as written, if it is one of YAML's own: any other may be an unquoted string."""
    name = tag.removeprefix(_TAG)
    return f"!!{name}" if tag.startswith(_TAG) and shown(name) else "that begins with !"


def parse(text: str, name: str) -> Document:
    """Parse one YAML document; errors call it ``name`` and have the line."""
    build = _Build(name)
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = None if node is None else build.value(node, ())
    except RecursionError:
        raise ConfigError("config.invalid_yaml", "nested too deeply", where=name) from None
    except yaml.YAMLError as error:
        raise _syntax(error, name) from None
    return Document(value, build.places, {})


def _syntax(error: yaml.YAMLError, name: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "no reason given"
    # A password that begins with * or & is an alias or an anchor of that name.
    problem = re.sub(r"(alias|anchor|handle) '.*'", r"\1", problem, flags=re.DOTALL)
    where = name if mark is None else f"{name}:{mark.line + 1}"
    hint = ""
    if "'\\t'" in problem:
        hint = "indent with spaces"
    elif "alias" in f"{problem}{getattr(error, 'context', '')}":
        hint = "quote strings that begin with * or &"
    elif problem.startswith("expected ',' or"):
        hint = "inside { } and [ ], quote strings that contain any of { } [ ] ,"
    return ConfigError("config.invalid_yaml", f"not YAML: {problem}", where=where, hint=hint)


def read(path: Path) -> Document:
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
    return parse(text, str(path))
