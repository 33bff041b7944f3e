"""The keys of dataset and cluster files, and suggestions for unknown ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from larder.config.document import KeyPath, dotted
from larder.config.models import Cluster, Dataset
from larder.config.suggest import nearest, suggest


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
