"""JSON Schemas of the dataset and cluster files, for editors.

``python -m larder.config.schema`` writes them to configs/schema; a test holds them to the models.
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

__all__ = ["SCHEMAS", "main", "schema", "text"]

SCHEMAS: dict[str, type[BaseModel]] = {"dataset.json": Dataset, "cluster.json": Cluster}
"""The files of configs/schema, and the model that each describes."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_CHECKED = ("enum", "const", "pattern", "minimum", "maximum")


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a file as it is written: ``name`` may be left out, and a value that is
    no free text may be a text with a ``${VARIABLE}`` in it.
    """
    generated = model.model_json_schema(by_alias=True)
    generated["required"].remove("name")
    return {"$schema": _DRAFT, **_with_variables(generated)}


def text(model: type[BaseModel]) -> str:
    """The file of a schema, byte for byte."""
    return json.dumps(schema(model), indent=2, ensure_ascii=False) + "\n"


def _with_variables(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_variables(each) for each in node]
    if not isinstance(node, dict):
        return node
    node = {key: _with_variables(value) for key, value in node.items() if key != "title"}
    if "anyOf" in node:
        node.pop("ge", None)  # of pydantic: no keyword of JSON Schema
        return {**node, "anyOf": list(_flat(node["anyOf"]))}
    if node.get("type") in ("integer", "number", "boolean") or (
        node.get("type") == "string" and any(key in node for key in _CHECKED)
    ):
        return _or_variable(node)
    return node


def _flat(branches: list[Any]) -> Iterator[Any]:
    """The branches without nesting, and without a variable where any text may stand."""
    inner = [each for branch in branches for each in branch.get("anyOf", [branch])]
    free = {"type": "string"} in inner
    return (each for each in inner if not (free and each == _VARIABLE))


def _or_variable(node: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        key: node.pop(key) for key in ("description", "default") if key in node
    }
    return {**shown, "anyOf": [node, _VARIABLE]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the schemas, each only if it differs, and name those written on stdout."""
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
