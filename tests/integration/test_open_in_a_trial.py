"""`larder.open()` in a trial of Determined, with the config that preparing emits."""

import json
from pathlib import Path

import pytest
from pipeline_lab import Lab, directory_lab, png, write
from ruamel.yaml import YAML

import larder
from larder.errors import ConfigError
from tests.support.errors import larder_error


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = directory_lab(tmp_path)
    lab.prepare()
    return lab


def config_of(lab: Lab) -> str:
    """As Determined gives it to a container: JSON."""
    (path,) = Path(str(lab.output)).rglob("experiment.yaml")
    return json.dumps(YAML(typ="safe").load(path))


def test_a_trial_opens_the_version_of_its_config(lab, monkeypatch):
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", config_of(lab))
    version = larder.open(f"{lab.storage}/larder/d").version
    assert larder.open().version == version
    write(str(lab.source), {"a/new.png": png(99)})
    lab.prepare()
    assert larder.open(f"{lab.storage}/larder/d").version != version
    assert larder.open().version == version, "not what the tag names by now"


def test_another_version_than_that_of_the_config_is_refused(lab, monkeypatch):
    """A variable of the image wins over the config, but must not contradict it."""
    config = config_of(lab)
    write(str(lab.source), {"a/new.png": png(99)})
    lab.prepare()
    monkeypatch.setenv("LARDER_LOCATION", f"{lab.storage}/larder/d")
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", config)
    with larder_error("config.invalid_value", "DET_EXPERIMENT_CONFIG"):
        larder.open()
    monkeypatch.delenv("LARDER_LOCATION")
    changed = json.loads(config)
    changed["data"]["digest"] = "0" * 64
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", json.dumps(changed))
    with pytest.raises(ConfigError):
        larder.open()


def test_a_process_outside_a_trial_is_told_so(monkeypatch):
    monkeypatch.delenv("DET_EXPERIMENT_CONFIG", raising=False)
    with larder_error("config.missing_variable"):
        larder.open()


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"data": {}}', '{"data": {"location": 3}}'])
def test_a_config_that_larder_did_not_emit_is_refused(config, monkeypatch):
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", config)
    with larder_error("config.invalid_value", "DET_EXPERIMENT_CONFIG"):
        larder.open()
