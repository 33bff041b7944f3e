from typing import Any

import pytest

from larder.experiments.consumers.determined.validate import validate
from tests.support.errors import larder_error

ASHA = {"name": "adaptive_asha", "metric": "x", "max_trials": 4}
TIMED = {"max_time": 9, "time_metric": "epochs"}


def experiment(**more: Any) -> dict[str, Any]:
    config = {
        "name": "digits",
        "entrypoint": "python3 train.py",
        "hyperparameters": {},
        "searcher": {"name": "single", "metric": "loss"},
        **more,
    }
    return {key: value for key, value in config.items() if value != "absent"}


def refused(release: str = "0.38", **more: Any) -> str:
    with larder_error("config.invalid_experiment", "t.yaml") as caught:
        validate(experiment(**more), release, where="t.yaml")
    return caught.value.message


def mount(**fields: Any) -> dict[str, Any]:
    return {"bind_mounts": [{"host_path": "/a", "container_path": "/b", **fields}]}


BROKEN: dict[str, dict[str, Any]] = {
    "relative host_path": mount(host_path="mnt"),
    "container_path .": mount(container_path="."),
    "read_only": mount(read_only="yes"),
    "mount key": mount(mode="ro"),
    "mounts": {"bind_mounts": {}},
    "unknown key": {"bindmounts": []},
    "variables": {"environment": {"environment_variables": {"A": "b"}}},
    "searcher": {"searcher": {"name": "singel", "metric": "loss"}},
    "metric": {"searcher": {"name": "single", "metric": 1}},
    "hyperparameters": {"hyperparameters": []},
    "data": {"data": []},
    "entrypoint": {"entrypoint": 1},
    "name": {"name": 1},
    "labels": {"labels": [1]},
}
"""What the schema of 0.21 refuses, too: tests/integration/test_determined_schema.py."""


@pytest.mark.parametrize("name", BROKEN)
def test_what_determined_rejects_is_refused(name):
    refused(**BROKEN[name])


@pytest.mark.parametrize(
    "more",
    [
        *({field: "absent"} for field in ("name", "entrypoint", "hyperparameters", "searcher")),
        *({"entrypoint": entrypoint} for entrypoint in ("", [1], "model_def:Trial")),
        *({"searcher": {"name": name, "metric": "x"}} for name in ("custom", "random")),
        {"searcher": {**ASHA, "max_time": 9}},
        {"searcher": {**ASHA, "time_metric": "epochs"}},
        {"searcher": {**ASHA, **TIMED, "max_length": {"epochs": 3}}},
        {"name": ""},
        {"workspace": "w"},
    ],
    ids=str,
)
def test_a_broken_rule_is_refused(more):
    refused(**more)


def test_fields_that_are_not_ours_pass():
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


LENGTH = {"searcher": {"name": "single", "metric": "x", "max_length": {"batches": 1}}}
OLD = {
    "name": "absent",
    "description": "digits",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"global_batch_size": 32},
    **LENGTH,
}


@pytest.mark.parametrize(
    ("release", "more"),
    [
        ("0.21.0", {"log_policies": []}),
        ("0.15.6", {**OLD, "name": "digits"}),
        ("0.15.6", {**OLD, "description": "absent"}),
        ("0.15.6", {**OLD, "entrypoint": "python3 train.py"}),
        ("0.15.6", {**OLD, "hyperparameters": {}}),
        ("0.15.6", {**OLD, "environment": {"environment_variables": {"cuda": []}}}),
        ("0.17.6", {**experiment(), **LENGTH, "hyperparameters": OLD["hyperparameters"]}),
        ("0.18.2", {**LENGTH, "workspace": "w", "project": "p"}),
        ("0.19.10", {**LENGTH, "data_layer": {}}),
        ("0.19.5", {"searcher": {"name": "custom", "metric": "x"}}),
        ("0.14.1", OLD),
        ("0.13.13", OLD),
    ],
    ids=str,
)
def test_what_a_release_does_not_have(release, more):
    refused(release, **more)


@pytest.mark.parametrize("name", ["single", "grid", "random", "adaptive_asha", "async_halving"])
def test_a_search_had_a_length_before_0_38(name):
    searcher = {"name": name, "metric": "x", "max_trials": 4}
    assert "searcher.max_length: required" in refused("0.37.0", searcher=searcher)


@pytest.mark.parametrize(
    ("release", "more"),
    [
        ("0.38.1", {"searcher": {**ASHA, **TIMED}}),
        ("0.37.0", {"searcher": {**ASHA, "max_length": {"epochs": 3}}}),
        ("0.19.9", {**LENGTH, "data_layer": {}}),
        ("0.17.12", LENGTH),
        ("0.15.6", OLD),
    ],
    ids=str,
)
def test_what_a_release_has(release, more):
    validate(experiment(**more), release)


@pytest.mark.parametrize("entry", ["A=1\n2", "A=1\r", "A=\0", "A\t=1", "A=\x7f"])
def test_variables_of_one_line(entry):
    refused(environment={"environment_variables": [entry]})
    refused(environment={"environment_variables": {"cuda": [entry]}})
    validate(experiment(environment={"environment_variables": ['A=it\'s ${B} "é"']}), "0.38")
