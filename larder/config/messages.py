"""Refusals of a model in plain words, with the position in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from larder.config.config_document import Document, KeyPath, dotted
from larder.config.models.field_types import RuleError
from larder.config.urls import shown
from larder.errors import ConfigError
from larder.units import nearest, suggest

_REPEATED = 20

_PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]{0,62}$": "a name of lower-case letters, digits, - and _, 63 at most",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$": "a name of letters, digits, - and _, 63 at most",
    r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$": 'a release such as "0.38"',
    r"^([A-Za-z0-9][A-Za-z0-9-]{0,62})?$": "a region such as us-west-2",
    r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$": "module:function",
}

_TYPES = {
    "string_type": "a string",
    "string_unicode": "a string in UTF-8",
    "string_too_short": "a non-empty string",
    "unfit_text": "a string in UTF-8 without NUL",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "auto_flag_type": "auto, true or false",
    "scalar_type": "a string, a finite number, true or false",
    "bytes_type": "a size such as 150 MB or 128 MiB",
}

_BOUNDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "literal_error": lambda ctx: str(ctx["expected"]).replace("'", ""),
    "string_pattern_mismatch": lambda ctx: _PATTERNS.get(
        ctx["pattern"], f"a string that matches {ctx['pattern']}"
    ),
    "greater_than_equal": lambda ctx: f"{ctx['ge']:,} or more",
    "less_than_equal": lambda ctx: f"{ctx['le']:,} or less",
    "too_short": lambda ctx: f"{ctx['min_length']} or more entries",
}


class FileModel(NamedTuple):
    """The model of a file, and its names in --set and messages.

    Attributes:
        noun: ``dataset`` or ``cluster``.
        prefix: The prefix of its keys in --set: ``cluster.`` or nothing.
    """

    model: type[BaseModel]
    noun: str
    prefix: str = ""


def refusals(
    error: ValidationError,
    schema: FileModel,
    document: Document,
    unfilled: Collection[KeyPath] = (),
) -> list[ConfigError]:
    """List the mistakes that a model found in a document: unknown keys first, then by line.

    Messages name the variable instead of a value from the environment. Strings that were given by
    --set, or that may be credentials, are not repeated either. Mistakes at, in or around the paths
    ``unfilled``, whose variables are not set, are left out as consequences.
    """
    messages = _Messages(schema, document)
    lines: list[tuple[bool, int, ConfigError]] = []
    for detail in error.errors(include_url=False):
        path, cause, problem = messages.refusal(detail)
        if not any(_is_within(each, cause) or _is_within(cause, each) for each in unfilled):
            unknown = detail["type"] == "extra_forbidden"
            lines.append((not unknown, document.place(path).line, problem))
    return [problem for _, _, problem in sorted(lines, key=lambda line: line[:2])]


def _is_within(path: KeyPath, outer: KeyPath) -> bool:
    return path[: len(outer)] == outer


class _Messages(NamedTuple):
    schema: FileModel
    document: Document

    def refusal(self, detail: ErrorDetails) -> tuple[KeyPath, KeyPath, ConfigError]:
        """Return the path of a mistake, the path of its cause, and the error."""
        path, kind = _path(detail, self.document.value), detail["type"]
        cause = path
        code, hint = "config.invalid_value", ""
        if kind == "extra_forbidden":
            code, text, hint = "config.unknown_key", "unknown key", self._meant(path)
        elif kind == "missing":
            text, hint = "missing key", "add it"
        elif kind == "value_error":
            path, cause, refused, text = self._own_rule(path, detail)
            code, hint = refused.code, refused.hint
        else:
            text, hint = self._unexpected(path, detail)
        place, key = self.document.place(path), self._key(path)
        given = place.line == 0 and path in self.document.places
        if path and not (given and place.where.removeprefix("--set ") in (key, place.where)):
            text = f"{key}: {text}"  # an argument or --set is named by ``where``
        return path, cause, ConfigError(code, text, where=place.where, hint=hint)

    def _key(self, path: KeyPath) -> str:
        """Return a key as users write it: with ``cluster.`` for a cluster's key in --set."""
        parts = tuple(part if isinstance(part, int) or shown(part) else "..." for part in path)
        prefix = self.schema.prefix if self.document.place(path).line == 0 else ""
        return f"{prefix}{dotted(parts)}"

    def _meant(self, path: KeyPath) -> str:
        within = path[:-1]
        nouns = f"keys of {dotted(within)}" if within else "keys"
        return suggest(str(path[-1]), known_keys(self.schema.model, within), nouns)

    def _own_rule(
        self, path: KeyPath, detail: ErrorDetails
    ) -> tuple[KeyPath, KeyPath, RuleError, str]:
        """A rule of Larder's own models: its message is already plain."""
        error = detail.get("ctx", {}).get("error")
        refused = error if isinstance(error, RuleError) else RuleError(str(error))
        cause = (*path[:-1], refused.beside) if refused.beside else path
        path = (*path, *refused.key.split(".")) if refused.key else path
        text = str(refused)
        if refused.detail and self._may_repeat(path):
            text = f"{text}: {refused.detail}"
        variables = self.document.variables.get(path, ())
        source = f" (it comes from {' and '.join(variables)})" if variables else ""
        return path, cause, refused, f"{text}{source}"

    def _unexpected(self, path: KeyPath, detail: ErrorDetails) -> tuple[str, str]:
        kind, value = detail["type"], detail["input"]
        context: Mapping[str, Any] = detail.get("ctx", {})
        bound = _BOUNDS.get(kind)
        expected = bound(context) if bound else _TYPES.get(kind)
        hint = ""
        if kind == "string_type" and isinstance(value, int | float):
            hint = "put it in quotes"
        if kind == "literal_error" and isinstance(value, str):
            near = nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
            hint = f"did you mean {near}?" if near else ""
        text = f"expected {expected}" if expected else detail["msg"].lower()
        return f"{text}{self._instead(value, path)}", hint

    def _instead(self, value: Any, path: KeyPath) -> str:
        """Return the end of a message about an unexpected value: ``, not 'x'``, or nothing."""
        variables = self.document.variables.get(path, ())
        if variables:
            return f", not the value of {' and '.join(variables)}"
        if isinstance(value, dict | list):
            article = "a" if value else "an empty"
            return f", not {article} {'mapping' if isinstance(value, dict) else 'list'}"
        if isinstance(value, str):
            text = shown(value) if self._may_repeat(path) else ""
        else:
            text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
            text = text if len(text) <= _REPEATED else ""
        return f", not {text}" if text else ""

    def _may_repeat(self, path: KeyPath) -> bool:
        """Whether a value comes from the file itself, not from a variable or --set."""
        filled = any(_is_within(each, path) for each in self.document.variables)
        return self.document.place(path).line > 0 and not filled


def _path(detail: ErrorDetails, value: Any) -> KeyPath:
    """Return the path in the file: pydantic's location without the names of union members."""
    path: KeyPath = ()
    for part in detail["loc"]:
        keys: Collection[Any] = value if isinstance(value, dict) else ()
        if isinstance(value, list):
            keys = range(len(value))
        if part in keys:
            path, value = (*path, part), value[part]
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else path


def known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the allowed keys of a mapping at ``path`` of ``model``; empty if all are allowed."""
    models = [model]
    for part in path:
        if isinstance(part, int):
            continue
        annotations = [
            field.annotation
            for each in models
            for name, field in each.model_fields.items()
            if part == (field.alias or name)
        ]
        models = [each for annotation in annotations for each in _models(annotation)]
    keys = (field.alias or name for each in models for name, field in each.model_fields.items())
    return list(dict.fromkeys(keys))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
