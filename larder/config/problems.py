"""What a model refuses, in plain words, with the place in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from larder.config.document import Document, KeyPath, dotted
from larder.config.fields import RefusedError
from larder.config.models import Cluster, Dataset
from larder.config.secrets import shown
from larder.config.suggest import nearest, suggest
from larder.config.yaml import scalar
from larder.errors import ConfigError

__all__ = ["Problem", "Schema", "instead", "refusal", "translate"]

_ECHOED = 20

_PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]{0,62}$": "a name of lower-case letters, digits, - and _, 63 at most",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$": "a name of letters, digits, - and _, 63 at most",
    r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$": 'a release such as "0.38"',
    r"^([A-Za-z0-9][A-Za-z0-9-]{0,62})?$": "a region such as us-west-2",
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
    "unfit_text": lambda ctx: "a text in UTF-8 without NUL",
    "bytes_type": lambda ctx: "bytes such as 150 MB or 128 MiB",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file: what, at which path, and what to do."""

    path: KeyPath
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file may say, and how --set and people name it.

    Attributes:
        model: Of its content.
        noun: ``dataset`` or ``cluster``.
        prefix: What --set puts before its keys: ``cluster.`` or nothing.
    """

    model: type[BaseModel]
    noun: str
    prefix: str


_SCHEMAS = (Schema(Dataset, "dataset", ""), Schema(Cluster, "cluster", "cluster."))


def refusal(
    problems: Sequence[Problem], document: Document, unfilled: Collection[KeyPath] = ()
) -> list[ConfigError]:
    """The problems as errors, by their place in the file.

    Unknown keys come first: a key that is missing is often one that was misspelt.

    Args:
        problems: All that is wrong.
        document: Where.
        unfilled: Paths of variables that are not set: what is said about these, or about what
            holds them, follows from that.
    """

    def order(problem: Problem) -> tuple[bool, int]:
        return problem.code != "config.unknown_key", document.place(problem.path).line

    def follows(problem: Problem) -> bool:
        return any(
            path[: len(problem.path)] == problem.path or problem.path[: len(path)] == path
            for path in unfilled
        )

    return [
        ConfigError(
            problem.code,
            problem.message,
            where=document.place(problem.path).where,
            hint=problem.hint,
        )
        for problem in sorted(problems, key=order)
        if not follows(problem)
    ]


def translate(error: ValidationError, schema: Schema, document: Document) -> list[Problem]:
    """The problems of a document that a model refused.

    No value that came from an environment variable is repeated; the variable is named instead.
    Nor is any text that was given by --set, or that may be a credential.
    """
    details = error.errors(include_url=False)
    return [_problem(detail, schema, document) for detail in details]


def _problem(detail: ErrorDetails, schema: Schema, document: Document) -> Problem:
    path = _path(detail, document.value)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown(path, schema, document)
    if kind == "missing":
        key = _key(path, schema, document)
        return Problem(path, "config.invalid_value", f"{key} is missing")
    if kind == "value_error":
        return _refused(path, detail, schema, document)
    return _unexpected(path, detail, schema, document)


def _key(path: KeyPath, schema: Schema, document: Document) -> str:
    """A key as people write it: in --set, those of a cluster have ``cluster.`` in front."""
    return f"{schema.prefix if document.place(path).line == 0 else ''}{dotted(path)}"


def _unknown(path: KeyPath, schema: Schema, document: Document) -> Problem:
    place, key, rest = document.place(path), _key(path, schema, document), ""
    given = place.line == 0
    if given:  # the whole key of --set, though its first part may be unknown already
        whole = place.where.removeprefix("--set ")
        rest = whole[len(key) :] if whole.startswith(f"{key}.") else ""
    hint = _meant(path, schema, rest, given=given)
    name = f" {key}{rest}" if shown(f"{key}{rest}") else ""
    return Problem(path, "config.unknown_key", f"unknown key{name}", hint)


def _meant(path: KeyPath, schema: Schema, rest: str, *, given: bool) -> str:
    """Which keys an unknown one may have meant: beside it, else elsewhere, else in the other file.

    Args:
        path: Of the unknown key.
        schema: Of its file.
        rest: What follows the unknown key in --set.
        given: Whether it was given by --set.
    """
    last, within = str(path[-1]), dotted(path[:-1])
    prefix = schema.prefix if given else ""
    beside = known_keys(schema.model, path[:-1])
    start = f"{prefix}{within}." if within else prefix
    near = [f"{start}{key}{rest}" for key in nearest(last, beside, count=3)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    for other in sorted(_SCHEMAS, key=lambda each: each.noun != schema.noun):
        same = [key for key in _all_keys(other.model, len(path) > 1) if _fits(key, last + rest)]
        if same and (given or other.noun == schema.noun):
            front = other.prefix if given else ""
            return f"did you mean {' or '.join(f'{front}{key}' for key in same[:3])}?"
        if same:
            return f"{same[0]} belongs in the file of the {other.noun}"
    return suggest(last, [f"{start}{key}" for key in beside], "known keys")


def _fits(key: str, wanted: str) -> bool:
    return f".{key.lower()}".endswith(f".{wanted.lower()}")


def _all_keys(model: type[BaseModel], values_only: bool, prefix: str = "") -> Iterator[str]:
    """The dotted keys of a file, with or without those of mappings."""
    for key, annotation in _fields(model).items():
        listed = str(annotation).startswith("tuple")
        inner = [] if listed else list(_models(annotation))
        if not (inner and values_only):
            yield f"{prefix}{key}"
        for each in inner:
            yield from _all_keys(each, values_only, f"{prefix}{key}.")


def _refused(path: KeyPath, detail: ErrorDetails, schema: Schema, document: Document) -> Problem:
    """A rule of our own models: its message is plain already."""
    error = detail.get("ctx", {}).get("error")
    refused = error if isinstance(error, RefusedError) else RefusedError(str(error))
    message = str(refused)
    if refused.detail and _may_repeat(path, document):
        message = f"{message}: {refused.detail}"
    head, colon, rest = message.partition(": ")
    inner: KeyPath = (*path, *head.split("."))
    if colon and inner in document.places:
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
    message = f"{_key(path, schema, document)}: {text}{instead(value, document, path)}"
    hint = _advice(kind, value, context)
    if hint == _QUOTES and document.place(path).line == 0:
        key = document.place(path).where.removeprefix("--set ")
        hint = f"put it in quotes of its own: --set '{key}=\"{value}\"'"
    return Problem(path, "config.invalid_value", message, hint)


_QUOTES = "put it in quotes"


def _advice(kind: str, value: Any, context: dict[str, Any]) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return _QUOTES
    if kind in ("int_type", "float_type") and isinstance(value, str) and _is_number(value):
        return "take it out of its quotes"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return "write it without a point or an exponent"
    if kind == "model_type" and value in ("none", "None", "no", "off"):
        return "leave the key out, or write null, for none"
    if kind == "literal_error" and isinstance(value, str):
        near = nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
        return f"did you mean {near[0]}?" if near else ""
    return ""


def _is_number(text: str) -> bool:
    return isinstance(scalar(text.strip()), int | float)


def instead(value: Any, document: Document, path: KeyPath) -> str:
    """What a message says of the value that was not expected: ``, not 'x'``; or nothing."""
    variables = document.variables.get(path, ())
    if variables:
        return f", not what {' and '.join(variables)} holds"
    if isinstance(value, dict | list):
        return f", not a {'mapping' if isinstance(value, dict) else 'list'}"
    if isinstance(value, str):
        text = shown(value) if _may_repeat(path, document) else ""
    else:
        text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    brief = isinstance(value, str) or len(text) <= _ECHOED
    return f", not {text}" if text and brief else ""


def _may_repeat(path: KeyPath, document: Document) -> bool:
    """Whether a text stands in the file itself: neither in a variable nor in --set."""
    return document.place(path).line > 0 and path not in document.variables


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
