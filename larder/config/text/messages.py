"""What a model refuses, in plain words, with the position in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from larder.config.models import Cluster, Dataset
from larder.config.models.fields import RefusedError
from larder.config.models.source import misplaced
from larder.config.text.yaml import Document, KeyPath, dotted, scalar
from larder.config.urls import shown
from larder.errors import ConfigError
from larder.units import nearest, suggest


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file may contain, and how --set and messages name it.

    Attributes:
        noun: ``dataset`` or ``cluster``.
        prefix: What --set puts before its keys: ``cluster.`` or nothing.
    """

    model: type[BaseModel]
    noun: str
    prefix: str


_DEEPEST = 2
"""How deep a key may be to be suggested for one elsewhere: the names of columns are no help."""

_SCHEMAS = (Schema(Dataset, "dataset", ""), Schema(Cluster, "cluster", "cluster."))


def meant(path: KeyPath, schema: Schema, rest: str, *, given: bool) -> str:
    """A suggestion for an unknown key: a sibling, or a key elsewhere or in the other file.

    ``rest`` is what follows the unknown key in --set, and ``given`` whether it was given there.
    """
    last, within = str(path[-1]), dotted(path[:-1])
    prefix = schema.prefix if given else ""
    schemas = _SCHEMAS if schema in _SCHEMAS else (schema,)
    for other in schemas if given else ():
        if dotted(path) + rest in all_keys(other.model, values_only=False):
            return f"did you mean {other.prefix}{dotted(path)}{rest}?"
    beside = known_keys(schema.model, path[:-1])
    start = f"{prefix}{within}." if within else prefix
    near = [f"{start}{key}{rest}" for key in nearest(last, beside, count=3)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    for other in sorted(schemas, key=lambda each: each.noun != schema.noun):
        keys = all_keys(other.model, values_only=len(path) > 1)
        same = [key for key in keys if _fits(key, last + rest) and key.count(".") <= _DEEPEST]
        if same and (given or other.noun == schema.noun):
            front = other.prefix if given else ""
            return f"did you mean {' or '.join(f'{front}{key}' for key in same[:3])}?"
        if same:
            return f"{same[0]} belongs in the {other.noun} file"
    return suggest(last, [f"{start}{key}" for key in beside], "known keys")


def _fits(key: str, wanted: str) -> bool:
    return f".{key.lower()}".endswith(f".{wanted.lower()}")


def all_keys(model: type[BaseModel], *, values_only: bool, prefix: str = "") -> Iterator[str]:
    """The dotted keys of a file, with or without those of mappings; each once."""
    yield from dict.fromkeys(_all_keys(model, values_only=values_only, prefix=prefix))


def _all_keys(model: type[BaseModel], *, values_only: bool, prefix: str) -> Iterator[str]:
    for key, annotation in _fields(model).items():
        listed = str(annotation).startswith("tuple")
        inner = [] if listed else list(_models(annotation))
        if not (inner and values_only):
            yield f"{prefix}{key}"
        for each in inner:
            yield from _all_keys(each, values_only=values_only, prefix=f"{prefix}{key}.")


def known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys that a mapping at ``path`` of ``model`` may have; empty if any key is allowed."""
    models: list[type[BaseModel]] = [model]
    for part in path:
        fields = [_fields(each).get(str(part)) for each in models]
        found = [each for field in fields for each in _models(field)]
        models = found or (models if isinstance(part, int) else [])
    return list(dict.fromkeys(key for each in models for key in _fields(each)))


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


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
