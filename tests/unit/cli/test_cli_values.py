"""Values that every command with an argument refuses, in the same words."""

import pytest

from larder.cli.main import dispatch
from tests.support.errors import larder_error


@pytest.mark.parametrize("command", ["ls", "du", "show", "diff", "lease"])
def test_an_empty_name_is_no_dataset(command):
    with larder_error("config.invalid_value") as caught:
        dispatch([command, ""])
    assert caught.value.where == "DATASET"


@pytest.mark.parametrize(
    "command",
    ["advise --dataset d", "card d", "clean d --keep 1", "copy a b", "ls", "refresh", "tag d t"],
)
def test_a_config_folder_with_credentials_is_refused_and_not_shown(command):
    with larder_error("config.secret") as caught:
        dispatch([*command.split(), "--config-dir", "s3://key:canary@bucket"])
    assert caught.value.where == "--config-dir"
    assert "canary" not in str(caught.value)
