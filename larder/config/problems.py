"""What a model refuses, in plain words, with the position in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from larder.config.document import Document, KeyPath, dotted
from larder.config.fields import RefusedError
from larder.config.keys import Schema, meant
from larder.config.secrets import shown
from larder.config.stores import misplaced
from larder.config.suggest import nearest
from larder.config.yaml import scalar
from larder.errors import ConfigError

_ECHOED = 20

_PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]{0,62}$": "a name of lower-case letters, digits, - and _, 63 at most",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$": "a name of letters, digits, - and _, 63 at most",
    r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$": 'a release such as "0.38"',
    r"^([A-Za-z0-9][A-Za-z0-9-]{0,62})?$": "a region such as us-west-2",
}

_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "string_type": lambda ctx: "a string",
    "string_unicode": lambda ctx: "a string in UTF-8",
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
        ctx["pattern"], f"a string that matches {ctx['pattern']}"
    ),
    "greater_than": lambda ctx: f"more than {ctx['gt']:,}",
    "greater_than_equal": lambda ctx: f"{ctx['ge']:,} or more",
    "less_than": lambda ctx: f"less than {ctx['lt']:,}",
    "less_than_equal": lambda ctx: f"{ctx['le']:,} or less",
    "too_short": lambda ctx: f"{ctx['min_length']} or more entries",
    "string_too_short": lambda ctx: "a non-empty string",
    "unfit_text": lambda ctx: "a string in UTF-8 without NUL",
    "auto_flag_type": lambda ctx: "auto, true or false",
    "bytes_type": lambda ctx: "a size such as 150 MB or 128 MiB",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file.

    Attributes:
        beside: The path of another value, without which there would be no mistake.
    """

    path: KeyPath
    code: str
    message: str
    hint: str = ""
    beside: KeyPath | None = None


def refusal(
    problems: Sequence[Problem], document: Document, unfilled: Collection[KeyPath] = ()
) -> list[ConfigError]:
    """The problems as errors, in the order of the file.

    Unknown keys come first: a missing key is often a misspelt one. Problems of the paths
    ``unfilled``, whose variables are not set, or of what contains them, are only consequences.
    """

    def order(problem: Problem) -> tuple[bool, int]:
        return problem.code != "config.unknown_key", document.place(problem.path).line

    def follows(problem: Problem) -> bool:
        return problem.beside in unfilled or any(
            path[: len(problem.path)] == problem.path or problem.path[: len(path)] == path
            for path in unfilled
        )

    def message(problem: Problem) -> str:
        place = document.place(problem.path)  # with --set, the message begins with the key itself
        key = place.where.removeprefix("--set ") if place.line == 0 else ""
        return problem.message.removeprefix(f"{key}: ") if key else problem.message

    return [
        ConfigError(
            problem.code,
            message(problem),
            where=document.place(problem.path).where,
            hint=problem.hint,
        )
        for problem in sorted(problems, key=order)
        if not follows(problem)
    ]


def translate(error: ValidationError, schema: Schema, document: Document) -> list[Problem]:
    """The problems of a document that a model refused.

    Values of environment variables are not repeated; the variable is named instead. Nor are
    strings that were given by --set, or that may be credentials.
    """
    details = error.errors(include_url=False)
    return [_problem(detail, schema, document) for detail in details]


def _problem(detail: ErrorDetails, schema: Schema, document: Document) -> Problem:
    path = _path(detail, document.value)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _misplaced(path, schema, document) or _unknown(path, schema, document)
    if kind == "missing":
        key = _key(path, schema, document)
        return Problem(path, "config.invalid_value", f"{key} is missing")
    if kind == "value_error":
        return _refused(path, detail, schema, document)
    return _unexpected(path, detail, schema, document)


def _key(path: KeyPath, schema: Schema, document: Document) -> str:
    """A key as users write it: with the prefix ``cluster.`` for a cluster's key in --set."""
    parts = tuple(part if isinstance(part, int) or shown(part) else "..." for part in path)
    return f"{schema.prefix if document.place(path).line == 0 else ''}{dotted(parts)}"


def _misplaced(path: KeyPath, schema: Schema, document: Document) -> Problem | None:
    """A key of another provider than that of the location's URL."""
    location = document.value
    for part in path[:-1]:
        location = location[part]
    reason = misplaced(str(path[-1]), location.get("url"))
    if not reason:
        return None
    key = _key(path, schema, document)
    hint = f"remove it, or pass --set {schema.prefix}{dotted(path)}="
    url = (*path[:-1], "url")
    return Problem(path, "config.invalid_value", f"{key}: {reason}", hint, beside=url)


def _unknown(path: KeyPath, schema: Schema, document: Document) -> Problem:
    place, key, rest = document.place(path), _key(path, schema, document), ""
    given = place.line == 0
    if given:  # the full key of --set, though its first part may already be unknown
        whole = place.where.removeprefix("--set ")
        rest = whole[len(key) :] if whole.startswith(f"{key}.") else ""
    hint = meant(path, schema, rest, given=given)
    name = f" {key}{rest}" if shown(f"{key}{rest}") else ""
    return Problem(path, "config.unknown_key", f"unknown key{name}", hint)


def _refused(path: KeyPath, detail: ErrorDetails, schema: Schema, document: Document) -> Problem:
    """A rule of Larder's own models: its message is already plain."""
    error = detail.get("ctx", {}).get("error")
    refused = error if isinstance(error, RefusedError) else RefusedError(str(error))
    message = str(refused)
    if refused.detail and _may_repeat(path, document):
        message = f"{message}: {refused.detail}"
    head, colon, rest = message.partition(": ")
    inner: KeyPath = (*path, *head.split("."))
    if colon and (*path, inner[len(path)]) in document.places:
        path, message = inner, rest
    key = f"{_key(path, schema, document)}: " if path else ""
    variables = document.variables.get(path, ())
    source = f" (it comes from {' and '.join(variables)})" if variables else ""
    return Problem(path, refused.code, f"{key}{message}{source}", refused.hint)


def _unexpected(path: KeyPath, detail: ErrorDetails, schema: Schema, document: Document) -> Problem:
    kind, value = detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx", {})
    expected = _EXPECTED.get(kind)
    text = f"expected {expected(context)}" if expected else detail["msg"].lower()
    key = _key(path, schema, document)
    message = f"{key}: {text}{instead(value, document, path)}"
    hint = _advice(kind, value, context)
    if hint == _QUOTES and document.place(path).where == f"--set {key}":
        hint = f"add quotes: --set '{key}=\"{value}\"'"
    return Problem(path, "config.invalid_value", message, hint)


_QUOTES = "put it in quotes"


def _advice(kind: str, value: Any, context: dict[str, Any]) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return _QUOTES
    if kind in ("int_type", "float_type") and isinstance(value, str) and _is_number(value):
        return "remove the quotes"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return "write it without a decimal point or exponent"
    if kind == "model_type" and value in ("none", "None", "no", "off"):
        return "omit the key, or write null"
    if kind == "literal_error" and isinstance(value, str):
        near = nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
        return f"did you mean {near[0]}?" if near else ""
    return ""


def _is_number(text: str) -> bool:
    return isinstance(scalar(text.strip()), int | float)


def instead(value: Any, document: Document, path: KeyPath) -> str:
    """What a message says about the unexpected value: ``, not 'x'``, or nothing."""
    variables = document.variables.get(path, ())
    if variables:
        return f", not the value of {' and '.join(variables)}"
    if isinstance(value, dict | list):
        article = "a" if value else "an empty"
        return f", not {article} {'mapping' if isinstance(value, dict) else 'list'}"
    if isinstance(value, str):
        text = shown(value) if _may_repeat(path, document) else ""
    else:
        text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    brief = isinstance(value, str) or len(text) <= _ECHOED
    return f", not {text}" if text and brief else ""


def _may_repeat(path: KeyPath, document: Document) -> bool:
    """Whether a string comes from the file itself, not from a variable or --set."""
    return document.place(path).line > 0 and path not in document.variables


def _path(detail: ErrorDetails, value: Any) -> KeyPath:
    """The path in the file: pydantic's location without the names of union members."""
    path: KeyPath = ()
    for part in detail["loc"]:
        keys: Container[Any] = value if isinstance(value, dict) else ()
        if isinstance(value, list):
            keys = range(len(value))
        if part in keys:
            path, value = (*path, part), value[part]
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else path
