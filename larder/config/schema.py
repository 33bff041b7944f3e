"""JSON Schemas of the dataset and cluster files, for editors.

``python -m larder.config.schema`` writes them to configs/schema; a test checks that they are
current.

Editors show the errors that a schema gives, so each mistake should be one error, at its own path:
there is no ``anyOf``, for which a validator only reports that nothing matched. A value that is not
free text may be a string with a ``${VARIABLE}``; otherwise its type is checked (``if`` and
``else``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from larder.config.models import Cluster, Dataset

SCHEMAS: dict[str, type[BaseModel]] = {"dataset.json": Dataset, "cluster.json": Cluster}
"""The files of configs/schema, and the model that each describes."""

Node = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_CHECKED = ("enum", "const", "pattern", "minimum", "maximum")
_QUANTITY = r"^\s*[0-9][0-9_,]*(\.[0-9]+)?\s*([KMGTPkmgtp]?[Bb]|[KMGTPkmgtp][Ii][Bb])?\s*$"
_ANY = "Any"
_SHOWN = ("description", "default")
_BOUNDS = {"ge": "minimum", "le": "maximum"}


def schema(model: type[BaseModel]) -> Node:
    """The JSON Schema of a file as users write it.

    ``name`` may be omitted, and a value that is not free text may be a string with a
    ``${VARIABLE}`` in it.
    """
    generated = model.model_json_schema(by_alias=True)
    generated["required"].remove("name")
    plain = _plain(generated)
    _complete(plain["$defs"])
    return {"$schema": _DRAFT, **plain}


def text(model: type[BaseModel]) -> str:
    return json.dumps(schema(model), indent=2, ensure_ascii=False) + "\n"


def _plain(node: Node) -> Node:
    """A schema without pydantic's own keywords, and without alternatives."""
    node = {key: value for key, value in node.items() if key != "title"}
    shown = {key: node.pop(key) for key in _SHOWN if key in node}
    for names in ("properties", "$defs"):
        if names in node:
            node[names] = {name: _plain(each) for name, each in node[names].items()}
    if "items" in node:
        node["items"] = _plain(node["items"])
    if "patternProperties" in node:
        ((pattern, values),) = node.pop("patternProperties").items()
        node |= {"propertyNames": {"pattern": pattern}, "additionalProperties": _plain(values)}
    if "oneOf" in node:
        branches = list(map(_plain, node["oneOf"]))
        located = all("$ref" in branch for branch in branches)
        return shown | (_located(*branches) if located else _splits(*branches))
    if "anyOf" in node:
        return shown | _together(node)
    return shown | _or_variable(node)


def _together(node: Node) -> Node:
    """The alternatives of a node as a single schema with several types."""
    branches = [*_flat(node)]
    inner = [branch for branch in branches if "$ref" in branch]
    if inner:
        return {"if": {"type": "null"}, "else": inner[0]}
    kinds = [branch["type"] for branch in branches]
    merged: Node = {"type": kinds}
    for branch in branches:
        merged |= {key: value for key, value in branch.items() if key not in ("type", "title")}
    if kinds[:2] == ["integer", "string"]:
        merged["pattern"] = _QUANTITY
    return _or_variable(merged)


def _flat(node: Node) -> Iterator[Node]:
    """The alternatives without nesting, with the bounds that pydantic keeps next to them."""
    bounds = {_BOUNDS[key]: node[key] for key in _BOUNDS if key in node}
    for branch in node.get("anyOf") or node["oneOf"]:
        numeric = branch.get("type") in ("integer", "number")
        within = branch | (bounds if numeric else {})
        if "anyOf" in branch or "oneOf" in branch:
            yield from _flat(within)
        else:
            yield {_BOUNDS.get(key, key): value for key, value in within.items()}


def _or_variable(node: Node) -> Node:
    kinds = node.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else {*kinds}
    typed = kinds & {"integer", "number", "boolean"}
    if typed or ("string" in kinds and any(key in node for key in _CHECKED)):
        return {"if": _VARIABLE, "else": node}
    return node


def _splits(globs: Node, hashed: Node) -> Node:
    """Distinguished as in `larder.config.models`."""
    fractions = {"required": ["fractions"], "properties": {"fractions": {"type": "object"}}}
    by_hash = {"required": ["by"], "properties": {"by": {"const": "hash"}}}
    return {"if": {"anyOf": [fractions, by_hash]}, "then": hashed, "else": globs}


def _located(s3: Node, gcs: Node, local: Node) -> Node:
    """Distinguished by the URL as in `larder.config.models.source`."""
    unknown = {"$ref": s3["$ref"].replace("S3", _ANY)}
    tests = ((r"^[Ss]3://", s3), (r"^[Gg][Ss]://", gcs), (r"\$\{", unknown))
    node = local
    for pattern, found in reversed(tests):
        named = {"required": ["url"], "properties": {"url": {"pattern": pattern}}}
        node = {"if": named, "then": found, "else": node}
    return node


def _complete(definitions: dict[str, Node]) -> None:
    """Adds to each kind of location the keys that only others have, for values that say nothing.

    A URL with a variable may be of any kind, so there is a definition with all keys.
    """
    for noun in ("Location", "Source"):
        kinds = [definitions.get(f"{kind}{noun}") for kind in ("S3", "Gcs", "Local")]
        found = [kind for kind in kinds if kind]
        union: Node = {}
        for kind in reversed(found):
            union |= kind["properties"]
        for kind in found:
            others = union.keys() - kind["properties"].keys()
            kind["properties"] |= {key: _silent(union[key]) for key in union if key in others}
        if found:
            definitions[f"{_ANY}{noun}"] = found[0] | {"properties": union}


def _silent(node: Node) -> Node:
    """A value that says nothing, or may say nothing."""
    text = f"not for this kind of place: {node['description']}"
    return {"description": text, "if": _VARIABLE, "else": {"enum": [None, "", False]}}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m larder.config.schema", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("configs/schema"))
    directory = parser.parse_args(arguments).directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text(model):
            path.write_text(text(model), encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
