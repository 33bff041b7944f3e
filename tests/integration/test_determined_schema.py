"""Emitted configs, validated with Determined's own schemas.

The newest wheel that holds them is determined 0.21.0 (later ones validate in the master alone). It
is unpacked into .cache/ without its dependencies, and only its schemas are imported.
"""

import importlib
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT7
from required import at_night, at_push
from ruamel.yaml import YAML

from larder.config.models.cluster import CONTEXT_BYTES
from larder.errors import ConfigError
from larder.experiments.consumers.determined.companions import check_context
from larder.experiments.consumers.determined.validate import (
    determined_keys,
    release_number,
    title_key,
    validate,
)
from tests.support.golden import FOLDER
from tests.unit.experiments.test_model import BROKEN, LENGTH, experiment, mount

pytestmark = pytest.mark.push  # the wheels are downloaded

RELEASE = "0.21.0"
WITH_DATA_LAYER = "0.19.9"
"""The last release that has a data layer, and checks it."""
ROOT = Path(__file__).parents[2]
GOLDEN = sorted((FOLDER / "experiments").rglob("*.yaml"))
"""Emitted configs of every shipped template, and of every delivery."""
SCHEMA = "http://determined.ai/schemas/expconf/v0/"
KEYWORDS = ("disallowProperties", "union", "checks", "compareProperties", "optionalRef")


def unpacked(release: str) -> Path:
    """The wheel's files; downloaded once, and in one step for runs side by side."""
    target = ROOT / ".cache" / f"determined-{release}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=target.parent))
        wheel = f"determined=={release}"
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


@cache
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


@cache
def checker(release: str, keywords: tuple[str, ...] = KEYWORDS) -> Callable[[Any], list[str]]:
    """A function from a config to what a release of Determined says is wrong with it."""
    extensions, schemas = load(unpacked(release))
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


def check(config: Any) -> list[str]:
    """As on submission: what the cluster's defaults may still add can be missing."""
    return checker(RELEASE)(config)


def check_complete(config: Any) -> list[str]:
    """As after the cluster's defaults were added."""
    return checker(RELEASE, (*KEYWORDS, "eventuallyRequired", "eventually"))(config)


def test_the_validator_rejects_a_relative_host_path():
    """Or else it has silently lost Determined's keywords, and all other tests here say nothing."""
    assert check(experiment(**mount())) == []
    assert check(experiment(**BROKEN["relative host_path"])) == [
        "['bind_mounts', 0, 'host_path']: host_path must be an absolute path"
    ]
    assert "must not be" in check(experiment(**BROKEN["container_path ."]))[0]


@pytest.mark.parametrize("name", BROKEN)
def test_determined_rejects_what_the_model_rejects(name):
    assert check(experiment(**BROKEN[name]))


@pytest.mark.parametrize("name", ["single", "random", "grid", "adaptive_asha", "custom"])
def test_the_length_of_a_search_is_required(name):
    config = experiment(searcher={"name": name, "metric": "loss", "max_trials": 1})
    required = any("max_length" in problem for problem in check_complete(config))
    with pytest.raises(ConfigError) if required else nullcontext():
        validate(config, RELEASE)
    assert required == (name != "custom")


@pytest.mark.parametrize(
    "release", [RELEASE, *at_push("0.14.6", WITH_DATA_LAYER), *at_night("0.16.5", "0.17.15")]
)
def test_our_table_of_keys_is_determineds(release):
    keys = load(unpacked(release))[1][f"{SCHEMA}experiment.json"]["properties"].keys()
    assert determined_keys(release) == keys - ({"data_layer"} if release == RELEASE else set())


@pytest.mark.push
@pytest.mark.parametrize("release", ["0.14.6", "0.16.5", "0.17.15"])
@pytest.mark.parametrize("entrypoint", ["model_def:Trial", "python3 train.py"])
def test_older_releases_take_what_we_let_through(release, entrypoint):
    sizes = {"global_batch_size": 32}
    config = experiment(entrypoint=entrypoint, hyperparameters=sizes, **LENGTH)
    config[title_key(release_number(release))] = config.pop("name")
    problems = checker(release)(config)
    with pytest.raises(ConfigError) if problems else nullcontext():
        validate(config, release)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_emitted_configs_are_valid(path):
    config = YAML(typ="safe").load(path.read_text())
    assert check(config) == []
    if "data_layer" in config:
        check_data_layer = checker(WITH_DATA_LAYER)
        assert check_data_layer(config) == []
        for field in ("host_storage_path", "local_cache_host_path", "bucket"):
            broken = {**config["data_layer"], field: "relative", "type": "x"}
            assert check_data_layer(config | {"data_layer": broken}), "it looks at the data layer"
    config.setdefault("environment", {})["image"] = "from-the-cluster"
    config["checkpoint_storage"] = {"type": "shared_fs", "host_path": "/checkpoints"}
    config["reproducibility"] = {"experiment_seed": 1}
    assert check_complete(config) == []


@pytest.fixture(scope="session")
def read_context() -> Callable[..., list[Any]]:
    """Determined's own function that packs a directory; its client for the master is left out."""
    base = unpacked(RELEASE) / "determined" / "common"
    stubs = {name: types.ModuleType(name) for name in ("determined", "determined.common", "api")}
    stubs["determined"].__path__ = [str(base.parent)]
    common = stubs["determined.common"]
    common.__path__ = [str(base)]
    stubs["determined.common.api"] = api = stubs.pop("api")
    api.bindings = types.SimpleNamespace(v1File=types.SimpleNamespace)
    stubs["determined.common.util"] = util = types.ModuleType("determined.common.util")
    util.sizeof_fmt = str
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name, module in stubs.items():
            patch.setitem(sys.modules, name, module)
        context = importlib.import_module("determined.common.context")
        for name in ("context", "constants"):
            patch.delitem(sys.modules, f"determined.common.{name}")

    def read(directory: Path, *includes: Path) -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return list(context.read_v1_context(directory, includes))

    return read


IGNORED = ["*.log\n", "/data\n!/data/x\n", "data/larder/d/*\n!*.tar\n", "# x\n\n**/shards\n", "d\n"]


@pytest.mark.parametrize("detignore", IGNORED)
def test_what_determined_leaves_out_is_refused(detignore, read_context, tmp_path):
    for name in ("data/larder/d/shards/x.tar", "data/x", "a.log", "shared_fs/y", "b/shared_fs/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / ".detignore").write_text(detignore)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".detignore"]
    packed = {file.path for file in read_context(tmp_path)}
    for path in files:
        name = path.relative_to(tmp_path).as_posix()
        refused = False
        try:
            check_context({name: 1}, tmp_path, CONTEXT_BYTES)
        except ConfigError:
            refused = True
        assert refused == (name not in packed), name


@pytest.mark.push
def test_the_limit_is_determineds(read_context, tmp_path):
    large = tmp_path / "large.bin"
    for size, allowed in ((CONTEXT_BYTES - 4, True), (CONTEXT_BYTES, False)):
        with large.open("wb") as file:
            file.truncate(size)
        with nullcontext() if allowed else pytest.raises(ValueError, match="maximum allowed size"):
            read_context(tmp_path)
        with nullcontext() if allowed else pytest.raises(ConfigError):
            check_context({"large.bin": size}, tmp_path, CONTEXT_BYTES)


def test_what_is_included_is_where_the_config_says(read_context, tmp_path):
    """As the line that submits has it: beside the model code, whose ``.detignore`` is not asked."""
    shard = "data/larder/d/segments/s/shards/train/d-train-000000.tar"
    for name in ("model/.detignore", "model/train.py", f"out/{shard}", "out/startup-hook.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("data\n*.tar\n" if "ignore" in name else "x")
    included = read_context(
        tmp_path / "model", tmp_path / "out/data", tmp_path / "out/startup-hook.sh"
    )
    assert {"train.py", "startup-hook.sh", shard} <= {file.path for file in included}
