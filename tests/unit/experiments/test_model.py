from __future__ import annotations

from typing import Any

import pytest

from larder.errors import ConfigError
from larder.experiments.validate import determined_keys, validate


def experiment(**more: Any) -> dict[str, Any]:
    config = {
        "name": "digits",
        "entrypoint": "python3 train.py",
        "hyperparameters": {},
        "searcher": {"name": "single", "metric": "loss"},
        **more,
    }
    return {key: value for key, value in config.items() if value != "absent"}


def problems(release: str = "0.38", **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(experiment(**more), release, where="t.yaml")
    assert caught.value.code == "config.invalid_experiment"
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("t.yaml: ")
    return caught.value.message


def test_fields_that_are_not_ours_pass() -> None:
    validate(
        experiment(
            log_policies=[],
            checkpoint_storage={"type": "shared_fs", "host_path": "/x"},
            resources={"slots_per_trial": 0, "shm_size": "4G", "is_single_node": True},
            environment={"image": "x", "environment_variables": {"cpu": ["A=1"], "cuda": ["A="]}},
            bind_mounts=[{"host_path": "/a", "container_path": "b", "propagation": "rshared"}],
            entrypoint=["python3", "train.py"],
            workspace="w",
            project="p",
        ),
        "0.38",
    )


@pytest.mark.parametrize("field", ["name", "entrypoint", "hyperparameters", "searcher"])
def test_a_required_field(field: str) -> None:
    assert f"{field}: field required" in problems(**{field: "absent"})


def test_all_problems_are_named_at_once() -> None:
    text = problems(
        entrypoint="",
        bindmounts=[],
        searcher={"name": "single"},
        bind_mounts=[{"host_path": "/a", "container_path": "/b", "read_only": "yes", "mode": 1}],
    )
    assert text.startswith("not an experiment of Determined 0.38: ")
    assert "bindmounts: unknown key, did you mean bind_mounts?" in text
    assert "entrypoint: must name a command" in text
    assert "searcher.metric: field required" in text
    assert "bind_mounts.0.read_only: " in text
    assert "bind_mounts.0.mode: " in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"zzz": 1}, "zzz: unknown key"),
        ({"entrypoint": 3}, "entrypoint: must be a string or a list of strings"),
        ({"entrypoint": [1]}, "entrypoint: must be a string or a list of strings"),
        ({"entrypoint": "model_def:Trial"}, "entrypoint: Determined 0.38 requires a command"),
        ({"name": ""}, "name: "),
        ({"hyperparameters": []}, "hyperparameters: "),
        ({"data": []}, "data: "),
        ({"searcher": {"name": "singel", "metric": "x"}}, "searcher.name: "),
        ({"searcher": {"name": "custom", "metric": "x"}}, "searcher.name: custom searchers"),
        (
            {"searcher": {"name": "random", "metric": "x"}},
            "searcher.max_trials: required by random",
        ),
        ({"workspace": "w"}, "workspace: give both workspace and project"),
        ({"resources": {"slots_per_trial": -1}}, "resources.slots_per_trial: "),
        ({"resources": {"shm_size": "4 gigs"}}, "resources.shm_size: must be a number of bytes"),
        ({"resources": {"shm_size": True}}, "resources.shm_size: must be a number of bytes"),
        ({"resources": {"priority": 100}}, "resources.priority: "),
        (
            {"environment": {"environment_variables": {"A": "b"}}},
            "environment.environment_variables: must be a list of NAME=VALUE",
        ),
        (
            {"environment": {"environment_variables": ["=b"]}},
            "environment.environment_variables: must contain only strings NAME=VALUE",
        ),
        (
            {"environment": {"environment_variables": "A=b"}},
            "environment.environment_variables: must be a list of NAME=VALUE",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_field(more: dict[str, Any], words: str) -> None:
    assert words in problems(**more)


@pytest.mark.parametrize(
    ("mounts", "words"),
    [
        ([("mnt", "/b")], "bind_mounts.0.host_path: must be an absolute path"),
        ([("/a/../b", "/b")], "bind_mounts.0.host_path: must not contain .."),
        ([("/a", ".")], "bind_mounts.0.container_path: must not be '.'"),
        ([("/a", "./")], "bind_mounts.0.container_path: must not be './'"),
        ([("/a", "")], "bind_mounts.0.container_path: must not be ''"),
        ([("/a", "/run/determined/workdir/")], "bind_mounts.0.container_path: must not be"),
        ([("/a", "b/../..")], "bind_mounts.0.container_path: must not contain .."),
        (
            [("/a", "/b"), ("/c", "/b/")],
            "bind_mounts.1.container_path: is also the container_path of",
        ),
    ],
)
def test_mounts_that_the_schema_lets_through(mounts: list[tuple[str, str]], words: str) -> None:
    found = [{"host_path": host, "container_path": container} for host, container in mounts]
    assert words in problems(bind_mounts=found)


def test_no_value_of_a_variable_is_repeated() -> None:
    text = problems(environment={"environment_variables": ["hunter2"]})
    assert "hunter2" not in text


ASHA = {"name": "adaptive_asha", "metric": "x", "max_trials": 4}


def test_asha_of_0_38_needs_a_time() -> None:
    text = problems(searcher={**ASHA, "max_length": {"epochs": 3}})
    assert "searcher.max_time: required by adaptive_asha" in text
    assert "searcher.time_metric: required by adaptive_asha" in text
    assert "searcher.max_length: replaced by max_time" in text
    validate(experiment(searcher={**ASHA, "max_time": 9, "time_metric": "epochs"}), "0.38.1")
    validate(experiment(searcher={**ASHA, "max_length": {"epochs": 3}}), "0.37.0")


@pytest.mark.parametrize(("release", "known"), [("0.19.9", True), ("0.19.10", False)])
def test_data_layer_is_known_as_long_as_it_worked(release: str, known: bool) -> None:
    assert ("data_layer" in determined_keys(release)) is known
    if known:
        validate(experiment(data_layer={}), release)
    else:
        assert "data_layer: removed in Determined 0.19.10" in problems(release, data_layer={})


def test_keys_that_came_later() -> None:
    assert "log_policies: unknown key" in problems("0.21.0", log_policies=[])
