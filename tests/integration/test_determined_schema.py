"""Emitted configs, validated with Determined's own schemas.

The newest wheel that holds them is determined 0.21.0 (later ones validate in the master alone). It
is unpacked into .cache/ without its dependencies, and only its schemas are imported.
"""

import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT7
from ruamel.yaml import YAML

from larder.errors import ConfigError
from larder.experiments.consumers.determined.validate import determined_keys, validate

RELEASE = "0.21.0"
ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden" / "experiments").glob("*.yaml"))
"""Emitted configs of every shipped template, for a directory, a mount and buckets."""
SCHEMA = "http://determined.ai/schemas/expconf/v0/"
KEYWORDS = ("disallowProperties", "union", "checks", "compareProperties", "optionalRef")
COMPLETE = (*KEYWORDS, "eventuallyRequired", "eventually")
Check = Callable[[Any], list[str]]


def unpacked() -> Path:
    """The wheel's files; downloaded once, and in one step for runs side by side."""
    target = ROOT / ".cache" / f"determined-{RELEASE}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=target.parent))
        wheel = f"determined=={RELEASE}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        done = subprocess.run(
            [*command, "--target", str(draft), wheel], capture_output=True, text=True
        )
        assert done.returncode == 0, f"pip could not install {wheel}: {done.stderr}"
        try:
            draft.rename(target)
        except OSError:
            assert target.exists(), "another run should have been first"
    return target


def load(target: Path) -> tuple[types.ModuleType, dict[str, dict[str, Any]]]:
    """The wheel's keywords and schemas, without importing the rest of determined."""
    base = target / "determined" / "common" / "schemas"
    for name, path in (("determined", base.parents[1]), ("determined.common", base.parent)):
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
    try:
        from determined.common.schemas import extensions
        from determined.common.schemas.expconf import _gen

        return extensions, dict(_gen.schemas)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "determined"]:
            del sys.modules[name]


def checker(
    extensions: types.ModuleType, schemas: dict[str, dict[str, Any]], keywords: tuple[str, ...]
) -> Check:
    """A function from a config to what Determined says is wrong with it."""
    # With "$schema" in a schema, jsonschema falls back to plain draft 7 there, without a word, and
    # Determined's own keywords are not looked at.
    bare = {
        url: {key: value for key, value in schema.items() if key != "$schema"}
        for url, schema in schemas.items()
    }
    found = {name: getattr(extensions, name) for name in keywords}
    validator = jsonschema.validators.extend(jsonschema.Draft7Validator, found)
    registry = Registry().with_resources(
        (url, DRAFT7.create_resource(schema)) for url, schema in bare.items()
    )
    experiment = validator(bare[f"{SCHEMA}experiment.json"], registry=registry)
    return lambda config: sorted(
        f"{list(error.absolute_path)}: {error.message}" for error in experiment.iter_errors(config)
    )


@pytest.fixture(scope="session")
def wheel() -> tuple[types.ModuleType, dict[str, dict[str, Any]]]:
    return load(unpacked())


@pytest.fixture(scope="session")
def check(wheel: tuple[types.ModuleType, dict[str, dict[str, Any]]]) -> Check:
    """As on submission: what the cluster's defaults may still add can be missing."""
    return checker(*wheel, KEYWORDS)


@pytest.fixture(scope="session")
def check_complete(wheel: tuple[types.ModuleType, dict[str, dict[str, Any]]]) -> Check:
    """As after the cluster's defaults were added."""
    return checker(*wheel, COMPLETE)


def experiment(**more: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "entrypoint": "python3 train.py",
        "hyperparameters": {},
        "searcher": {"name": "single", "metric": "loss", "max_length": 1},
        **more,
    }


def one_mount(**fields: Any) -> dict[str, Any]:
    return experiment(bind_mounts=[{"host_path": "/a", "container_path": "/b", **fields}])


BROKEN = {
    "relative host_path": one_mount(host_path="mnt"),
    "container_path .": one_mount(container_path="."),
    "read_only": one_mount(read_only="yes"),
    "mount key": one_mount(mode="ro"),
    "mounts": experiment(bind_mounts={}),
    "top-level key": experiment(bindmounts=[]),
    "variables": experiment(environment={"environment_variables": {"A": "b"}}),
    "searcher": experiment(searcher={"name": "singel", "metric": "loss"}),
    "metric": experiment(searcher={"name": "single", "metric": 1, "max_length": 1}),
    "hyperparameters": experiment(hyperparameters=[]),
    "data": experiment(data=[]),
    "entrypoint": experiment(entrypoint=1),
    "name": experiment(name=1),
    "labels": experiment(labels=[1]),
}


def test_the_validator_rejects_a_relative_host_path(check):
    """Or else it has silently lost Determined's keywords, and all other tests here say nothing."""
    assert check(one_mount()) == []
    assert check(BROKEN["relative host_path"]) == [
        "['bind_mounts', 0, 'host_path']: host_path must be an absolute path"
    ]
    assert "must not be" in check(BROKEN["container_path ."])[0]


@pytest.mark.parametrize("name", BROKEN)
def test_the_model_rejects_what_determined_rejects(name, check):
    assert check(BROKEN[name])
    with pytest.raises(ConfigError) as caught:
        validate(BROKEN[name], RELEASE)
    assert caught.value.code == "config.invalid_experiment"


def test_our_table_of_keys_is_determineds(wheel):
    keys = wheel[1][f"{SCHEMA}experiment.json"]["properties"].keys()
    assert determined_keys(RELEASE) == keys - {"data_layer"}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_emitted_configs_are_valid(path, check, check_complete):
    config = YAML(typ="safe").load(path.read_text())
    # 0.21 still wants the length of a search that 0.38 leaves to the training code.
    config["searcher"]["max_length"] = {"batches": 1}
    assert check(config) == []
    config.setdefault("environment", {})["image"] = "from-the-cluster"
    config["checkpoint_storage"] = {"type": "shared_fs", "host_path": "/checkpoints"}
    config["reproducibility"] = {"experiment_seed": 1}
    assert check_complete(config) == []
