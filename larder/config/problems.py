"""What a model refuses, in plain words, with the place in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from larder.config.document import Document, KeyPath, dotted
from larder.config.suggest import nearest, suggest
from larder.errors import ConfigError

__all__ = ["Problem", "refusal", "translate"]

_CREDENTIALS = "a URL must not hold credentials"  # as larder.config.models says it
_ECHOED = 60

_PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]{0,62}$": "a name of lower-case letters, digits, - and _, 63 at most",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$": "a name of letters, digits, - and _, 63 at most",
    r"^\d+\.\d+(\.\d+)?$": 'a release such as "0.38"',
}

_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "string_type": lambda ctx: "a text",
    "string_unicode": lambda ctx: "a text in UTF-8",
    "int_type": lambda ctx: "a whole number",
    "int_parsing": lambda ctx: "a whole number",
    "int_from_float": lambda ctx: "a whole number",
    "float_type": lambda ctx: "a number",
    "float_parsing": lambda ctx: "a number",
    "finite_number": lambda ctx: "a finite number",
    "bool_type": lambda ctx: "true or false",
    "bool_parsing": lambda ctx: "true or false",
    "dict_type": lambda ctx: "a mapping",
    "model_type": lambda ctx: "a mapping",
    "tuple_type": lambda ctx: "a list",
    "list_type": lambda ctx: "a list",
    "literal_error": lambda ctx: str(ctx["expected"]).replace("'", ""),
    "string_pattern_mismatch": lambda ctx: _PATTERNS.get(
        ctx["pattern"], f"a text that matches {ctx['pattern']}"
    ),
    "greater_than": lambda ctx: f"more than {ctx['gt']:,}",
    "greater_than_equal": lambda ctx: f"{ctx['ge']:,} or more",
    "less_than": lambda ctx: f"less than {ctx['lt']:,}",
    "less_than_equal": lambda ctx: f"{ctx['le']:,} or less",
    "too_short": lambda ctx: f"{ctx['min_length']} or more entries",
    "string_too_short": lambda ctx: "a text that is not empty",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file: what, at which path, and what to do."""

    path: KeyPath
    code: str
    message: str
    hint: str = ""


def refusal(problems: Sequence[Problem], document: Document) -> ConfigError:
    """One error: the first problem by its place, and how many more there are.

    Unknown keys come first: a key that is missing is often one that was misspelt.
    """

    def order(problem: Problem) -> tuple[bool, int]:
        return problem.code != "config.unknown_key", document.place(problem.path).line

    first = min(problems, key=order)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ConfigError(
        first.code,
        f"{first.message}{more}",
        where=document.place(first.path).where,
        hint=first.hint,
    )


def translate(error: ValidationError, model: type[BaseModel], document: Document) -> list[Problem]:
    """The problems of a document that ``model`` refused.

    No value that came from an environment variable is repeated; the variable is named instead.
    """
    details = _one_branch(error.errors(include_url=False), document.value)
    return [_problem(detail, model, document) for detail in details]


def _one_branch(details: Iterable[ErrorDetails], value: Any) -> Iterator[ErrorDetails]:
    """Of a splits that is neither globs nor a keyed hash, only the errors of what it was to be."""
    splits = value.get("splits") if isinstance(value, dict) else None
    hashed = isinstance(splits, dict) and not {"hash", "parts"}.isdisjoint(splits)
    for detail in details:
        branch = str(detail["loc"][1:2]) if detail["loc"][:1] == ("splits",) else ""
        other = "dict[" in branch if hashed else "HashSplits" in branch
        if not other:
            yield detail


def _problem(detail: ErrorDetails, model: type[BaseModel], document: Document) -> Problem:
    path = _path(detail, document.value)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown(path, model, document)
    if kind == "missing":
        return Problem(path, "config.invalid_value", f"{dotted(path)} is missing")
    if kind == "value_error":
        return _refused(path, detail, document)
    return _unexpected(path, detail, document)


def _unknown(path: KeyPath, model: type[BaseModel], document: Document) -> Problem:
    known = known_keys(model, path[:-1])
    if len(path) == 1 and document.place(path).line == 0:
        known.append("cluster")  # as in --set cluster.local.url=...
    hint = suggest(str(path[-1]), known, "known keys")
    return Problem(path, "config.unknown_key", f"unknown key {dotted(path)}", hint)


def _refused(path: KeyPath, detail: ErrorDetails, document: Document) -> Problem:
    """A rule of our own models: its message is plain already."""
    message = str(detail.get("ctx", {}).get("error", detail["msg"]))
    for at, names in document.variables.items():
        if at[: len(path)] == path:
            message = _without(message, _at(document.value, at), names)
    head, colon, rest = message.partition(": ")
    inner: KeyPath = (*path, *head.split("."))
    if colon and inner in document.places:
        path, message = inner, rest
    code = "config.secret" if message.startswith(_CREDENTIALS) else "config.invalid_value"
    message, _, hint = message.partition("; ")
    key = f"{dotted(path)}: " if path else ""
    return Problem(path, code, f"{key}{message}", hint)


def _unexpected(path: KeyPath, detail: ErrorDetails, document: Document) -> Problem:
    kind, value = detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx", {})
    expected = _EXPECTED.get(kind)
    text = f"expected {expected(context)}" if expected else detail["msg"].lower()
    instead = _instead(value, document.variables.get(path, ()))
    message = f"{dotted(path)}: {text}{instead}"
    return Problem(path, "config.invalid_value", message, _advice(kind, value, context))


def _advice(kind: str, value: Any, context: dict[str, Any]) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return "put it in quotes"
    if kind == "model_type" and value in ("none", "None", "no", "off"):
        return "leave the key out, or write null, for none"
    if kind == "literal_error" and isinstance(value, str):
        near = nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
        return f"did you mean {near[0]}?" if near else ""
    return ""


def _instead(value: Any, variables: tuple[str, ...]) -> str:
    if variables:
        return f", not what {' and '.join(variables)} holds"
    if isinstance(value, dict | list):
        return f", not a {'mapping' if isinstance(value, dict) else 'list'}"
    shown = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return f", not {shown}" if 0 < len(shown) <= _ECHOED else ""


def _without(message: str, value: Any, variables: tuple[str, ...]) -> str:
    """``message`` with the value of an environment variable replaced by the variable's name."""
    name = f"the value of {' and '.join(variables)}"
    message = message.replace(repr(value), name)
    return message.replace(value, name) if isinstance(value, str) and len(value) > 3 else message


def _at(value: Any, path: KeyPath) -> Any:
    for part in path:
        value = value[part]
    return value


def _path(detail: ErrorDetails, value: Any) -> KeyPath:
    """The path in the file: pydantic's location without the names of union branches."""
    path: KeyPath = ()
    for part in detail["loc"]:
        keys: Container[Any] = value if isinstance(value, dict) else ()
        if isinstance(value, list):
            keys = range(len(value))
        if part in keys:
            path, value = (*path, part), value[part]
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else path


def known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys that a mapping at ``path`` of ``model`` may have; none where any may stand."""
    models: list[type[BaseModel]] = [model]
    for part in path:
        fields = [_fields(each).get(str(part)) for each in models]
        found = [each for field in fields for each in _models(field)]
        models = found or (models if isinstance(part, int) else [])
    return [key for each in models for key in _fields(each)]


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
