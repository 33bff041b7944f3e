"""Templates of experiments as text: allowed values, and YAML with its comments.

Some consumers read YAML 1.1 (kubectl, PyYAML), others YAML 1.2, so a value without quotes has to be
the same in both: ``yes``, ``012``, ``1e3`` and dates are not. Aliases and merges are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.constructor import RoundTripConstructor, SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.resolver import implicit_resolvers

from larder.config.config_document import KeyPath, dotted, scalar
from larder.config.text import Build, file_text, parse, syntax_error
from larder.errors import ConfigError

_FLOAT = "tag:yaml.org,2002:float"
_BOOL = "tag:yaml.org,2002:bool"

_NO_FLOAT_IN_1_1 = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*[eE][0-9]+|[0-9]+[eE][-+]?[0-9]+)")
"""No floats in YAML 1.1, which needs a point and the exponent's sign; ruamel.yaml accepts them."""


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
    text = file_text(path)
    parse(text, str(path), _TemplateBuild)
    try:
        return round_trip().load(text)
    except YAMLError as error:
        raise syntax_error(error, str(path)) from None
    except (ValueError, RecursionError):
        message = "a value is not valid, or nested too deeply"
        raise ConfigError("config.invalid_yaml", message, where=str(path)) from None
