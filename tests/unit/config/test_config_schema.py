import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from larder.config import json_schema
from larder.config.json_schema import SCHEMAS, main, text
from larder.config.load import load_cluster, load_dataset, load_template
from larder.config.models.dataset import Dataset
from larder.config.text import read
from larder.errors import ConfigError
from tests.support.errors import larder_error

CONFIGS = Path(__file__).parents[3] / "configs"
FILES = sorted(CONFIGS.glob("datasets/*.yaml")) + sorted(CONFIGS.glob("clusters/*.yaml"))
LEAST = {"dataset": {"source": {"url": "./here"}}, "cluster": {"storage": {"url": "./there"}}}
ENVIRON = {"IMAGENET_SOURCE": "s3://src", "LARDER_SOURCE": "s3://src", "LARDER_STORAGE": "s3://dst"}


@cache
def schema(name: str) -> dict[str, Any]:
    return json_schema.schema(SCHEMAS[name])


def described(node: Any, path: str) -> Iterator[tuple[str, str]]:
    yield path, node.get("description", "")
    for name, each in node.get("properties", {}).items():
        yield from described(each, f"{path}.{name}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_has_a_description(name):
    whole = schema(name)
    texts = dict(described(whole, name))
    for title, each in whole["$defs"].items():
        texts |= described(each, title)
    assert len(texts) > 15
    assert [path for path, description in texts.items() if not description] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_current(name):
    written = (CONFIGS / "schema" / name).read_text(encoding="utf-8")
    assert written == text(SCHEMAS[name]), "run python -m larder.config.json_schema"
    jsonschema.Draft202012Validator.check_schema(json.loads(written))


def test_the_command_writes_only_what_differs(tmp_path, capsys):
    folder = tmp_path / "schema"
    assert main(folder) == 0
    (folder / "dataset.json").write_text("{}")
    capsys.readouterr()
    assert main(folder) == 0
    assert capsys.readouterr().out == f"{folder}/dataset.json\n"


@pytest.mark.parametrize(
    ("noun", "change"),
    [
        ("dataset", {"mirrr": 1}),
        ("dataset", {"source": {}}),
        ("dataset", {"source": "s3://bucket"}),
        ("dataset", {"mirror": "yes"}),
        ("dataset", {"cache": {"records": "x"}}),
        ("dataset", {"shards": {"bytes": []}}),
        ("dataset", {"shards": {"shuffle_seed": True}}),
        ("dataset", {"shards": {"size": 1}}),
        ("dataset", {"description": 7}),
        ("dataset", {"splits": {"train": 0.9}}),
        ("cluster", {"copy": {"concurrency": "4"}}),
        ("cluster", {"copy": {"concurrency": 0}}),
        ("cluster", {"copy": {"max_cost_usd": True}}),
        ("cluster", {"consumer": {"release": 0.38}}),
        ("cluster", {"nodes": {"mounts": [{}]}}),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(noun, change, tmp_path):
    content = {**LEAST[noun], **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema(f"{noun}.json"))
    (tmp_path / f"{noun}s").mkdir()
    (tmp_path / f"{noun}s/x.yaml").write_text(json.dumps(content))
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
        {"source": {"url": "${URL}", "anonymous": "${PUBLIC}", "project": "${PROJECT}"}},
        {"mirror": "auto"},
    ],
)
def test_valid_files_have_no_errors(change):
    jsonschema.validate({**LEAST["dataset"], **change}, schema("dataset.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_fit_their_schema_before_variables_are_filled_in(path):
    name = f"{path.parent.name.removesuffix('s')}.json"
    jsonschema.validate(read(path).value, schema(name))
    first = path.read_text().splitlines()[0]
    reference = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / reference).resolve() == CONFIGS / "schema" / name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_copy_under_another_name_has_that_name_and_its_template(path, tmp_path):
    copy = tmp_path / path.parent.name / "mine.yaml"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    found = (load_dataset if path.parent.name == "datasets" else load_cluster)(
        tmp_path, "mine", (), ENVIRON
    )
    assert found.name == "mine"
    assert found.description
    if isinstance(found, Dataset) and found.experiment.template:
        assert load_template(CONFIGS, found.experiment.template)


@pytest.mark.parametrize("name", ["imagenet", "imagenet-folders", "files"])
def test_a_source_url_is_all_that_the_others_need(name):
    with larder_error("config.missing_variable"):
        load_dataset(CONFIGS, name, (), {})
    assert load_dataset(CONFIGS, name, ["source.url=./x"], {}).source.url == "./x"
