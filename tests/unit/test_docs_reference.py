import argparse
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, Tag

from larder.cli.arguments import add_dataset, parser
from larder.cli.copy_command import COPY, PRUNE
from larder.cli.display import STAGES
from larder.cli.verify_command import VERIFY
from larder.config.load import load_cluster, load_dataset
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset, HashSplits
from larder.config.text import parse
from larder.errors import CODES
from larder.pipeline.planning.checks import WARNINGS

REFERENCE = Path(__file__).parents[2] / "docs/reference"
REQUIRED = "required"


def rows(page: str, heading: str) -> list[list[str]]:
    section = (REFERENCE / page).read_text().split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a model; of a nested model that may be null, also its own."""
    yield from dict.fromkeys(_fields(model, prefix))


def _fields(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        inner = list(_models(field.annotation))
        listed = str(field.annotation).startswith("tuple")
        if not inner or listed or not _only_models(field.annotation):
            yield key
        for each in inner:
            yield from _fields(each, f"{key}{'[]' if listed else ''}.")


def _only_models(annotation: Any) -> bool:
    """Whether it is a model, or one of several models."""
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    alternatives = [each for each in get_args(annotation) if not isinstance(each, Tag)]
    return bool(alternatives) and all(map(_only_models, alternatives))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def value(cell: str) -> Any:
    return parse(cell.strip("`"), "cell").value


def put(tree: dict[str, Any], key: str, content: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
    tree[last] = content


MODELS = [
    (
        "## Dataset",
        Dataset,
        {"name": "x", "source": {"url": "x"}, "labels": {}, "cache": {}, "shards": {"images": {}}},
    ),
    ("## Cluster", Cluster, {"name": "x", "storage": {"url": "x"}}),
]
OTHER_KEYS: dict[str, Any] = {
    "splits": {"validation": "*"},
    "validate": "decode",
    "cache": {"records": "decoded"},
    "samples": {"annotations": {"files": "x.json"}},
}
"""What some examples need."""


@pytest.mark.parametrize(("heading", "model", "least"), MODELS)
def test_every_key_is_described(heading, model, least):
    assert [row[0].strip("`") for row in rows("config.md", heading)] == list(fields(model))


@pytest.mark.parametrize(("heading", "model", "least"), MODELS)
def test_defaults_are_those_of_the_models(heading, model, least):
    stated: dict[str, Any] = {"name": "x"}
    for key, _, default, _ in rows("config.md", heading):
        name = key.strip("`")
        if default not in (REQUIRED, "the file's name") and not _is_inner(name):
            put(stated, name, value(default))
    put(stated, "source.url" if model is Dataset else "storage.url", "x")
    assert model.model_validate(stated) == model.model_validate(least)


_NULL_AND_INNER = (
    "splits.",
    "source.inventory.",
    "source.rows.",
    "samples.annotations.",
    "cache.images.",
    "consumer.file_system.",
    "nodes.downloads.",
    "consumer.vpc.",
)


def _is_inner(name: str) -> bool:
    """Keys of another kind of splits, of list items, or of fields that are null by default."""
    return (
        name.startswith(_NULL_AND_INNER)
        or "[]" in name
        or name in ("labels", "cache", "shards.images")
    )


BESIDE: dict[str, dict[str, Any]] = {
    "shards.features": {"shards.format": "tfrecord"},
    "source.inventory.": {"source.inventory.url": "y"},
    "source.rows.files": {"source.rows.format": "text"},
    "source.project": {"source.url": "gs://bucket"},
    "storage.project": {"storage.url": "gs://bucket"},
    "cache.images.mode": {"cache.images.resize": [1, 1]},
    "cache.builder": {"cache": {"builder": "module:function"}},
    "consumer.": {"consumer.kind": "sagemaker"},
    "consumer.file_system.": {
        "consumer.file_system": {"type": "efs", "id": "fs-01234567", "directory": "/"}
    },
    "consumer.vpc.": {"consumer.vpc": {"subnets": ["subnet-1"], "security_groups": ["sg-1"]}},
    "nodes.downloads.": {"nodes.downloads": {"host_path": "/x", "container_path": "/x"}},
    "runner.address": {"runner.kind": "dask"},
}
"""What examples of keys that begin so need beside them."""


@pytest.mark.parametrize(("heading", "model", "least"), MODELS)
def test_examples_are_accepted(heading, model, least):
    for key, _, _, example in rows("config.md", heading):
        name = key.strip("`")
        if name.startswith("splits."):
            splits = {
                "by": "hash",
                "seed": 1,
                "fractions": {"a": 1},
                name.removeprefix("splits."): value(example),
            }
            assert HashSplits.model_validate(splits)
        elif "[]" not in name:
            tree: dict[str, Any] = deepcopy(OTHER_KEYS) if model is Dataset else {}
            put(tree, "source.url" if model is Dataset else "storage.url", "s3://bucket")
            for beginning, others in BESIDE.items():
                for other, content in others.items() if name.startswith(beginning) else ():
                    put(tree, other, deepcopy(content))
            put(tree, name, value(example))
            assert model.model_validate(_merged(least, tree))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], over[key])
        for key in base.keys() & over.keys()
        if isinstance(base[key], dict) and isinstance(over[key], dict)
    }
    return base | over | both


def test_the_files_on_the_pages_are_valid(tmp_path):
    """Every dataset and cluster file that they show with its name."""
    shown = 0
    for page in (
        "reference/config.md",
        "tutorial.md",
        "how-to/sagemaker.md",
        "how-to/croissant.md",
    ):
        text = (REFERENCE.parent / page).read_text()
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            name = re.match(r"# configs/((?:datasets|clusters)/(.*)\.yaml)\n", block)
            if name:
                shown += 1
                path = tmp_path / name[1]
                path.parent.mkdir(exist_ok=True)
                path.write_text(block)
                load = load_dataset if name[1].startswith("datasets") else load_cluster
                load(tmp_path, name[2], (), {"LARDER_STORAGE": "s3://bucket"})
    assert shown == 7


def test_every_error_code_is_there_with_its_meaning_and_status():
    table = rows("errors.md", "`run.failed`.")
    assert {row[0].strip("`"): row[1] for row in table} == CODES
    for _, _, advice, status in table:
        assert advice
        assert status in ("1", "2", "3", "4", "130")


def test_every_warning_of_a_plan_is_there_with_its_meaning():
    table = rows("cli.md", "A warning has one of these codes:")
    assert [code.strip("`") for code, _ in table] == list(WARNINGS)
    assert all(meaning for _, meaning in table)


def test_every_flag_is_there_and_the_exit_statuses_agree_with_help():
    shared = parser("x", "x", add_dataset)
    stated = {row[0].strip("`").split()[0] for row in rows("cli.md", "## Flags that all share")}
    assert stated == _flags(shared)
    help_text = shared.format_help()
    for status, meaning in rows("cli.md", "## Exit status"):
        assert f"  {status:<4} {meaning}\n" in help_text


def _flags(of: argparse.ArgumentParser) -> set[str]:
    return {flag for flag in of._option_string_actions if flag.startswith("--")} - {"--help"}


def test_the_flags_of_copies_are_there():
    stated = {row[0].strip("`").split()[0] for row in rows("cli.md", "## copy")}
    assert stated == _flags(COPY.parser("x"))
    own = {row[0].strip("`").split()[0] for row in rows("cli.md", "## prune")}
    assert own == {"--max-delete"}
    assert stated - {"--verify"} | own == _flags(PRUNE.parser("x"))


def test_the_flags_of_verifications_are_there():
    stated = {row[0].strip("`").split()[0] for row in rows("cli.md", "## verify")}
    assert stated | _flags(parser("x", "x", add_dataset)) == _flags(VERIFY.parser("x"))


def test_the_stages_shown_are_those_described():
    table = {row[0].strip("`"): row[2] for row in rows("cli.md", "## Stages")}
    assert table == {name: f"{noun}s" if noun else "" for name, noun in STAGES.items()}
    assert list(table) == list(STAGES)
