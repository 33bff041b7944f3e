"""What the files and the environment make of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from larder.config.location import check_overlap
from larder.errors import ConfigError
from larder.pipeline.settings import load_settings

CONFIGS = Path(__file__).parents[3] / "configs"


def test_variables_missing_in_either_file_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings("imagenet", "aws-us-west-2", config_dir=CONFIGS, environ={})
    assert caught.value.code == "config.missing_variable"
    assert "IMAGENET_SOURCE" in str(caught.value)
    assert "LARDER_LOCAL" in str(caught.value)


def test_a_variable_missing_in_the_cluster_alone_is_named() -> None:
    environ = {"IMAGENET_SOURCE": "s3://bucket/imagenet"}
    with pytest.raises(ConfigError, match="LARDER_LOCAL"):
        load_settings("imagenet", "aws-us-west-2", config_dir=CONFIGS, environ=environ)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_server_named_by_the_environment_is_known(name: str) -> None:
    environ = {
        "IMAGENET_SOURCE": "s3://bucket/data",
        "IMAGENET_SOURCE_ENDPOINT": "http://127.0.0.1:9000",
        "LARDER_LOCAL": "s3://bucket/data/local",
        name: "http://127.0.0.1:9000",
    }
    asked = load_settings("imagenet", "aws-us-west-2", config_dir=CONFIGS, environ=environ)
    local = asked.cluster.local
    assert local.endpoint == "http://127.0.0.1:9000"
    with pytest.raises(ConfigError) as caught:
        check_overlap(asked.dataset.source, local.url, local_endpoint=local.endpoint)
    assert caught.value.code == "config.overlap"


def test_directories_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = load_settings("digits", config_dir=CONFIGS)
    assert asked.dataset.source.url == str(tmp_path / "data/source/digits")
    assert asked.cluster.local.url == str(tmp_path / "data/local")
    assert asked.output == tmp_path / "out/local/digits"
