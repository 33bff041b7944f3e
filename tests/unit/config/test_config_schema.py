"""What an editor shows for a mistake: one error, at the right path, with what is expected."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.exceptions import best_match

from larder.config.load import load_cluster, load_dataset
from larder.config.schema import SCHEMAS, schema
from larder.errors import ConfigError

DATASET = {"source": {"url": "./here"}}
CLUSTER = {"storage": {"url": "./there"}}


def described(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every property and every mapping of a schema, and its description."""
    yield path, node.get("description", "")
    for name, each in node.get("properties", {}).items():
        yield from described(each, f"{path}.{name}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_has_a_description(name: str) -> None:
    whole = schema(SCHEMAS[name])
    found = dict(described(whole, name))
    for title, each in whole["$defs"].items():
        found |= described(each, title)
    assert len(found) > 15
    assert [path for path, text in found.items() if not text] == []


MISTAKES = [
    ("dataset", {"mirrr": 1}, "$", "'mirrr' was unexpected"),
    ("dataset", {"source": {}}, "$.source", "'url' is a required property"),
    ("dataset", {"source": "s3://bucket"}, "$.source", "is not of type 'object'"),
    ("dataset", {"mirror": "yes"}, "$.mirror", "'yes' is not one of ['auto', True, False]"),
    ("dataset", {"mirror": 1}, "$.mirror", "1 is not one of ['auto', True, False]"),
    ("dataset", {"cache": "none"}, "$.cache", "'none' is not of type 'object'"),
    ("dataset", {"cache": {"records": "x"}}, "$.cache.records", "is not one of ['encoded', 'dec"),
    ("dataset", {"shards": {"bytes": []}}, "$.shards.bytes", "not of type 'integer', 'string'"),
    ("dataset", {"shards": {"bytes": "1 QB"}}, "$.shards.bytes", "'1 QB' does not match"),
    (
        "dataset",
        {"shards": {"shuffle_seed": True}},
        "$.shards.shuffle_seed",
        "True is not of type 'integer'",
    ),
    ("dataset", {"shards": {"count_min": 100_001}}, "$.shards.count_min", "maximum of 100000"),
    ("dataset", {"shards": {"size": 1}}, "$.shards", "'size' was unexpected"),
    ("dataset", {"description": 7}, "$.description", "7 is not of type 'string'"),
    ("dataset", {"splits": {"train": 0.9}}, "$.splits.train", "0.9 is not of type 'string'"),
    ("dataset", {"splits": {"a b": "x"}}, "$.splits", "'a b' does not match"),
    ("dataset", {"splits": {"by": "hash"}}, "$.splits", "'seed' is a required property"),
    (
        "dataset",
        {"splits": {"by": "hash", "seed": 7, "fractions": {"train": "most"}}},
        "$.splits.fractions.train",
        "'most' is not of type 'number'",
    ),
    ("dataset", {"splits": {"fractions": {"train": 1}}}, "$.splits", "'by' is a required property"),
    ("dataset", {"labels": {"from": "folders"}}, "$.labels.from", "is not one of ['folder',"),
    ("dataset", {"labels": {"classes": [1]}}, "$.labels.classes[0]", "1 is not of type 'string'"),
    (
        "cluster",
        {"storage": {"url": "s3://bucket", "endpoint": "h:1"}},
        "$.storage.endpoint",
        "does not match",
    ),
    (
        "cluster",
        {"storage": {"url": "a", "endpoint": "http://h:1"}},
        "$.storage.endpoint",
        "'http://h:1' is not one of [None, '', False]",
    ),
    (
        "cluster",
        {"storage": {"url": "gs://bucket", "profile": "x"}},
        "$.storage.profile",
        "'x' is not one of [None, '', False]",
    ),
    ("dataset", {"source": {"url": "s3://bucket", "projct": "x"}}, "$.source", "'projct' was"),
    (
        "dataset",
        {"source": {"url": "gs://bucket", "inventory": {"format": "x", "url": "y"}}},
        "$.source.inventory.format",
        "is not one of ['auto',",
    ),
    ("cluster", {"copy": {"concurrency": "4"}}, "$.copy.concurrency", "'4' is not of type 'int"),
    ("cluster", {"copy": {"concurrency": 0}}, "$.copy.concurrency", "less than the minimum of 1"),
    ("cluster", {"copy": {"max_cost_usd": True}}, "$.copy.max_cost_usd", "not of type 'number'"),
    ("cluster", {"copy": {"max_cost_usd": -1}}, "$.copy.max_cost_usd", "the minimum of 0"),
    ("cluster", {"consumer": {"release": 0.38}}, "$.consumer.release", "0.38 is not of type 'str"),
    ("cluster", {"consumer": {"kind": "slurm"}}, "$.consumer.kind", "'determined' was expected"),
    ("cluster", {"nodes": {"mounts": [{}]}}, "$.nodes.mounts[0]", "is a required property"),
    ("cluster", {"nodes": {"disk_bytes": 1.5}}, "$.nodes.disk_bytes", "1.5 is not of type"),
]


@pytest.mark.parametrize(("noun", "change", "path", "message"), MISTAKES)
def test_a_typical_mistake_has_one_error_where_it_is(
    noun: str, change: dict[str, Any], path: str, message: str, tmp_path: Path
) -> None:
    content = {**(DATASET if noun == "dataset" else CLUSTER), **change}
    validator = jsonschema.Draft202012Validator(schema(SCHEMAS[f"{noun}.json"]))
    errors = list(validator.iter_errors(content))
    assert {error.json_path for error in errors} == {path}
    best = best_match(errors)
    assert message in best.message
    assert "any of the given" not in best.message
    # The loader refuses the same.
    folder = tmp_path / f"{noun}s"
    folder.mkdir()
    (folder / "x.yaml").write_text(json.dumps(content))
    with pytest.raises(ConfigError):
        (load_dataset if noun == "dataset" else load_cluster)(tmp_path, "x", (), {})


@pytest.mark.parametrize(
    "change",
    [
        {"splits": {"by": "h", "seed": "hashed/**", "fractions": ["a/**"]}},
        {"splits": {"by": "hash", "seed": 7, "fractions": {"train": 1}}},
        {"splits": {"by": "hash", "seed": "${SEED}", "fractions": {"train": "${SHARE}"}}},
        {"cache": None, "labels": None},
        {"shards": {"bytes": "1.5 GiB", "shuffle_seed": None}},
        {"shards": {"bytes": "${BYTES:-150 MB}", "shuffle_seed": "${SEED}"}},
        {"mirror": "${MIRROR}", "validate": "${VALIDATE}"},
        {"source": {"url": "a", "include": "*", "endpoint": None, "region": "${REGION}"}},
        {"source": {"url": "${URL}", "profile": "reader", "project": "${PROJECT}"}},
        {"source": {"url": "gs://bucket", "project": "my-project", "profile": ""}},
        {"mirror": "auto"},
    ],
)
def test_valid_files_have_no_errors(change: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema(SCHEMAS["dataset.json"])).validate({**DATASET, **change})
