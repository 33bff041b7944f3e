from __future__ import annotations

from typing import Any

import pytest

from larder.errors import ConfigError
from larder.experiments.validate import determined_keys, validate

VARIABLES = "environment.environment_variables"


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
        bind_mounts=[{"host_path": "/a", "container_path": "/b", "mode": 1}],
    )
    for field in ("bindmounts", "entrypoint", "searcher.metric", "bind_mounts.0.mode"):
        assert f"{field}: " in text


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("zzz", {"zzz": 1}),
        ("entrypoint", {"entrypoint": 3}),
        ("entrypoint", {"entrypoint": [1]}),
        ("entrypoint", {"entrypoint": "model_def:Trial"}),
        ("name", {"name": ""}),
        ("hyperparameters", {"hyperparameters": []}),
        ("data", {"data": []}),
        ("searcher.name", {"searcher": {"name": "singel", "metric": "x"}}),
        ("searcher.name", {"searcher": {"name": "custom", "metric": "x"}}),
        ("searcher.max_trials", {"searcher": {"name": "random", "metric": "x"}}),
        ("workspace", {"workspace": "w"}),
        ("resources.slots_per_trial", {"resources": {"slots_per_trial": -1}}),
        ("resources.shm_size", {"resources": {"shm_size": "4 gigs"}}),
        ("resources.shm_size", {"resources": {"shm_size": True}}),
        ("resources.priority", {"resources": {"priority": 100}}),
        (VARIABLES, {"environment": {"environment_variables": {"A": "b"}}}),
        (VARIABLES, {"environment": {"environment_variables": ["=b"]}}),
        (VARIABLES, {"environment": {"environment_variables": "A=b"}}),
    ],
)
def test_a_broken_rule_is_named_with_its_field(field: str, more: dict[str, Any]) -> None:
    assert f"{field}: " in problems(**more)


@pytest.mark.parametrize(
    ("field", "mounts"),
    [
        ("0.host_path", [("mnt", "/b")]),
        ("0.host_path", [("/a/../b", "/b")]),
        ("0.container_path", [("/a", ".")]),
        ("0.container_path", [("/a", "./")]),
        ("0.container_path", [("/a", "")]),
        ("0.container_path", [("/a", "/run/determined/workdir/")]),
        ("0.container_path", [("/a", "b/../..")]),
        ("1.container_path", [("/a", "/b"), ("/c", "/b/")]),
    ],
)
def test_mounts_that_the_schema_lets_through(field: str, mounts: list[tuple[str, str]]) -> None:
    found = [{"host_path": host, "container_path": container} for host, container in mounts]
    assert f"bind_mounts.{field}: " in problems(bind_mounts=found)


def test_no_value_of_a_variable_is_repeated() -> None:
    text = problems(environment={"environment_variables": ["hunter2"]})
    assert "hunter2" not in text


ASHA = {"name": "adaptive_asha", "metric": "x", "max_trials": 4}


def test_asha_of_0_38_needs_a_time() -> None:
    text = problems(searcher={**ASHA, "max_length": {"epochs": 3}})
    for field in ("max_time", "time_metric", "max_length"):
        assert f"searcher.{field}: " in text
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
