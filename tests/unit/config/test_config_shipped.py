"""The bundled files in configs/: they load, and the schemas are current and match the loader."""

import shutil
from pathlib import Path

import pytest

from larder.config.load import load_cluster, load_dataset, load_template
from larder.config.models import Dataset
from tests.support.errors import larder_error

CONFIGS = Path(__file__).parents[3] / "configs"
ENVIRON = {
    "IMAGENET_SOURCE": "s3://src/i",
    "LARDER_SOURCE": "s3://src",
    "LARDER_STORAGE": "s3://dst",
}
FILES = sorted(CONFIGS.glob("datasets/*.yaml")) + sorted(CONFIGS.glob("clusters/*.yaml"))


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
