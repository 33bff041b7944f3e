"""The bundled files in configs/: they load, and the schemas are current and match the loader."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from larder.config.load import load_cluster, load_dataset, load_template, names
from larder.config.models import HashSplits
from larder.config.schema import SCHEMAS, main, text
from larder.config.text.yaml import read
from larder.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"
ENVIRON = {
    "IMAGENET_SOURCE": "s3://src/i",
    "LARDER_SOURCE": "s3://src",
    "LARDER_STORAGE": "s3://dst",
}
FILES = sorted(CONFIGS.glob("datasets/*.yaml")) + sorted(CONFIGS.glob("clusters/*.yaml"))


def schema_of(path: Path) -> dict[str, Any]:
    name = path.parent.name.removesuffix("s")
    loaded: dict[str, Any] = json.loads((CONFIGS / f"schema/{name}.json").read_text())
    return loaded


def test_the_bundled_files() -> None:
    assert names(CONFIGS, "datasets") == ["digits", "files", "imagenet", "imagenet-folders"]
    assert names(CONFIGS, "clusters") == ["aws-us-west-2", "local"]


@pytest.mark.parametrize("name", names(CONFIGS, "datasets"))
def test_datasets_load_and_their_templates_exist(name: str) -> None:
    dataset = load_dataset(CONFIGS, name, (), ENVIRON)
    assert dataset.description
    if dataset.experiment.template:
        assert load_template(CONFIGS, dataset.experiment.template)


@pytest.mark.parametrize("name", names(CONFIGS, "clusters"))
def test_clusters_load(name: str) -> None:
    assert load_cluster(CONFIGS, name, (), ENVIRON).description


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_copy_under_another_name_is_a_dataset_or_cluster_of_that_name(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / path.parent.name / "mine.yaml"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    load = load_dataset if path.parent.name == "datasets" else load_cluster
    assert load(tmp_path, "mine", (), ENVIRON).name == "mine"


def test_digits_and_local_need_no_variables() -> None:
    dataset = load_dataset(CONFIGS, "digits", (), {})
    assert isinstance(dataset.splits, HashSplits)
    assert dataset.validate_ == "decode"
    assert load_cluster(CONFIGS, "local", (), {}).storage.url == "./data/local"


@pytest.mark.parametrize("name", ["imagenet", "imagenet-folders", "files"])
def test_a_source_url_is_all_that_the_others_need(name: str) -> None:
    with pytest.raises(ConfigError, match="SOURCE is not set") as caught:
        load_dataset(CONFIGS, name, (), {})
    assert caught.value.code == "config.missing_variable"
    assert load_dataset(CONFIGS, name, ["source.url=./x"], {}).source.url == "./x"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_fit_their_schema_before_variables_are_filled_in(path: Path) -> None:
    jsonschema.validate(read(path).value, schema_of(path))
    first = path.read_text().splitlines()[0]
    reference = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / reference).resolve().is_file()


@pytest.mark.parametrize(
    "change",
    [
        {"mirrr": 1},
        {"mirror": "yes"},
        {"cache": {"records": "x"}},
        {"splits": {"by": "hash"}},
        {"shards": {"bytes": []}},
        {"source": {}},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(change: dict[str, Any]) -> None:
    path = CONFIGS / "datasets/digits.yaml"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**read(path).value, **change}, schema_of(path))


def test_variables_may_be_used_for_numbers() -> None:
    path = CONFIGS / "clusters/aws-us-west-2.yaml"
    copy = {"concurrency": "${N:-4}", "max_cost_usd": "${LIMIT}", "engine": "${E}"}
    jsonschema.validate({**read(path).value, "copy": copy}, schema_of(path))


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_current(name: str) -> None:
    written = (CONFIGS / "schema" / name).read_text(encoding="utf-8")
    assert written == text(SCHEMAS[name]), "run python -m larder.config.schema"
    jsonschema.Draft202012Validator.check_schema(json.loads(written))


def test_the_command_writes_only_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    (tmp_path / "dataset.json").write_text("{}")
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/dataset.json\n"
