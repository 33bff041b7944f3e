"""Every field accepts only values of its own type, and none that merely look like it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from larder.config.load import load_cluster, load_dataset
from larder.config.models.cluster import Cluster, Mount
from larder.config.models.dataset import Dataset, HashSplits
from larder.errors import ConfigError

WRONG: Mapping[type, list[str]] = {
    bool: ["0", "1", "1.0", "yes", "on", "'true'", "'${ONE}'", "[true]"],
    int: ["true", "false", "7.0", "'7'", "1e1", ".nan", "'${TRUE}'", "'${POINT}'", "[7]"],
    float: ["true", "false", "'0.5'", ".nan", ".inf", "-.inf", "1" + "0" * 400, "'${TRUE}'"],
    str: ["true", "0", "7", "1.5"],
}
ENVIRON = {"ONE": "1", "TRUE": "true", "POINT": "7.0", "SEVEN": "7", "HALF": "0.5", "OFF": "false"}


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Fields that hold no other model, by their dotted keys."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        inner = [each for each in _types(field.annotation) if issubclass(each, BaseModel)]
        for each in inner:
            if each not in (HashSplits, Mount):
                yield from leaves(each, f"{key}.")
        if not inner:
            yield key, field


def _types(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def kind_of(field: FieldInfo) -> type | None:
    """The scalar type of a field; None for lists, mappings and choices."""
    found = set(_types(field.annotation)) - {type(None)}
    plain = found & {bool, int, float, str}
    return plain.pop() if len(plain) == 1 and len(found) == 1 else None


_FOUND = dict.fromkeys(
    (model, key, kind)
    for model in (Dataset, Cluster)
    for key, field in leaves(model)
    if (kind := kind_of(field)) is not None and key not in ("name", "cache.images.resize")
)
FIELDS = [
    *_FOUND,
    (Dataset, "splits.seed", int),
    (Dataset, "splits.fractions.train", float),
    (Dataset, "splits.group", str),
    (Dataset, "splits.stratify", bool),
    (Dataset, "source.include", str),
    (Dataset, "labels.files.train", str),
    (Cluster, "nodes.mounts.read_only", bool),
    (Cluster, "nodes.mounts.host_path", str),
]
LEAST = {
    "copy.memory_bytes": "SEVEN",
    "copy.give_up_seconds": "HALF",
    "memory.tables_bytes": "SEVEN",
}
"""Fields that do not go as low as these variables."""
BESIDE = {
    "consumer": {"kind": "sagemaker"},
    "nodes.downloads": {"host_path": "/a", "container_path": "/b"},
    "consumer.file_system": {"type": "efs", "id": "x", "directory": "/"},
    "consumer.vpc": {"subnets": "[a]", "security_groups": "[a]"},
}
"""What the fields of these need beside them."""


def load(folder: Path, model: type[BaseModel], key: str, value: str) -> Any:
    """The model of a least file in which one field has a value, as YAML writes it."""
    url = "gs://bucket" if key.endswith(".project") else "s3://bucket"
    tree: dict[str, Any] = {"source" if model is Dataset else "storage": {"url": url}}
    if key.startswith("source.inventory."):
        tree["source"]["inventory"] = {"url": "y"}
    if key.startswith("splits."):
        tree["splits"] = {"by": "hash", "seed": "7", "fractions": {"train": "1"}}
    if key.startswith(("samples.annotations.", "labels.column")):
        tree["samples"] = {"annotations": {"files": "y"}}
    if key.startswith("labels.files"):
        tree["splits"] = {"train": "'**'"}
    *path, last = key.split(".")
    inner = tree
    for depth, part in enumerate(path, 1):
        inner = inner.setdefault(part, dict(BESIDE.get(".".join(path[:depth]), {})))
    inner[last] = value
    if "mounts" in tree.get("nodes", {}):
        mount = {"host_path": "/a", "container_path": "/b"} | tree["nodes"]["mounts"]
        tree["nodes"]["mounts"] = [mount]
    noun = "datasets" if model is Dataset else "clusters"
    (folder / noun).mkdir(exist_ok=True)
    (folder / noun / "x.yaml").write_text(_flow(tree))
    return (load_dataset if model is Dataset else load_cluster)(folder, "x", (), ENVIRON)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value)


@pytest.mark.parametrize(("model", "key", "kind"), FIELDS, ids=str)
def test_no_value_is_accepted_as_another_type(model, key, kind, tmp_path):
    for value in WRONG[kind]:
        if value == "'7'" and "bytes" in key.rpartition(".")[2]:
            continue  # which may be strings
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, model, key, value)
        assert caught.value.code == "config.invalid_value", (value, str(caught.value))
        assert key.rpartition(".")[2] in str(caught.value), (value, str(caught.value))


VARIABLES = {bool: "OFF", int: "SEVEN", float: "HALF"}
VALUES = {bool: False, int: 7, float: 0.5}


@pytest.mark.parametrize(
    ("model", "key", "kind"),
    [(model, key, kind) for model, key, kind in FIELDS if kind is not str],
    ids=str,
)
def test_a_variable_may_have_any_value_that_the_file_could(model, key, kind, tmp_path):
    text = f"'${{{VARIABLES[kind]}}}'"
    if key == "splits.fractions.train":
        text = f"{text}, test: 0.5"
    if key in LEAST:
        with pytest.raises(ConfigError):
            load(tmp_path, model, key, text)
        return
    found: Any = load(tmp_path, model, key, text).model_dump(by_alias=True)
    for part in key.split("."):
        found = found[0][part] if isinstance(found, tuple) else found[part]
    assert found == VALUES[kind]
    assert type(found) is kind


@pytest.mark.parametrize(
    ("model", "key"), [(Dataset, "shards.shuffle_seed"), (Cluster, "storage.region")]
)
def test_an_empty_variable_is_null_where_that_may_be(model, key, tmp_path):
    found: Any = load(tmp_path, model, key, "'${NOT_SET:-}'").model_dump(by_alias=True)
    for part in key.split("."):
        found = found[part]
    assert found is None
