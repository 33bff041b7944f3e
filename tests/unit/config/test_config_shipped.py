"""The bundled files in configs/: they load, and the schemas are current and match the loader."""

import shutil
from pathlib import Path

import pytest

from larder.config.load import load_cluster, load_dataset, load_template, names
from larder.config.models import HashSplits
from larder.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"
ENVIRON = {
    "IMAGENET_SOURCE": "s3://src/i",
    "LARDER_SOURCE": "s3://src",
    "LARDER_STORAGE": "s3://dst",
}
FILES = sorted(CONFIGS.glob("datasets/*.yaml")) + sorted(CONFIGS.glob("clusters/*.yaml"))


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
    with pytest.raises(ConfigError) as caught:
        load_dataset(CONFIGS, name, (), {})
    assert caught.value.code == "config.missing_variable"
    assert load_dataset(CONFIGS, name, ["source.url=./x"], {}).source.url == "./x"
