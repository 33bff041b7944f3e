"""JSON Schemas of the dataset and cluster files, for editors.

``python -m larder.config.json_schema`` writes them to configs/schema; a test checks that they are
current. They are those of the models, except that ``name`` may be left out, and that a value which
is not free text may be a string with a ``${VARIABLE}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset

SCHEMAS: dict[str, type[BaseModel]] = {"dataset.json": Dataset, "cluster.json": Cluster}
"""The files of configs/schema, and the model that each describes."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_CHECKED = {"enum", "const", "pattern"}
_SHOWN = ("description", "default")


def schema(model: type[BaseModel]) -> dict[str, Any]:
    generated = model.model_json_schema(by_alias=True)
    generated["required"].remove("name")
    return {"$schema": _DRAFT, **_node(generated)}


def text(model: type[BaseModel]) -> str:
    return json.dumps(schema(model), indent=2, ensure_ascii=False) + "\n"


def _node(node: dict[str, Any]) -> dict[str, Any]:
    """A schema without titles, in which values may be variables."""
    node = {key: value for key, value in node.items() if key != "title"}
    for names in ("properties", "$defs", "patternProperties"):
        if names in node:
            node[names] = {name: _node(each) for name, each in node[names].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            node[inner] = _node(node[inner])
    if "anyOf" in node:
        branches = [{key: each[key] for key in each if key != "title"} for each in node["anyOf"]]
        return {**node, "anyOf": [*branches, *([_VARIABLE] if any(map(_typed, branches)) else [])]}
    if _typed(node):
        shown = {key: node.pop(key) for key in _SHOWN if key in node}
        return {**shown, "anyOf": [node, _VARIABLE]}
    return node


def _typed(node: dict[str, Any]) -> bool:
    return node.get("type") in ("integer", "number", "boolean") or bool(_CHECKED & node.keys())


def main(directory: Path = Path("configs/schema")) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text(model):
            path.write_text(text(model), encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
