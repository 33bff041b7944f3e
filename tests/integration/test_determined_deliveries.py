"""Every delivery of Determined: what is emitted, and what a trial reads with it.

A trial is a process in a directory of its own, with the config as Determined hands it over; its
entrypoint sources ``startup-hook.sh`` in bash with ``-e`` and ``-x``.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, png, reach, write
from required import at_push
from ruamel.yaml import YAML

import larder
from larder.config.models.cluster import CONTEXT_BYTES
from larder.errors import ConfigError
from tests.support.errors import larder_error
from tests.support.processes import CHECKOUT
from tests.support.runs import TEMPLATE
from tests.support.servers import S3Server

READ = """
import json, larder
data = larder.open()
found = {
    split: [[key, label, {ext: part.hex() for ext, part in parts.items()}]
            for key, label, parts in data.samples(split)]
    for split in data.splits
}
print(json.dumps({"version": data.version, "found": found}))
"""
ENTRYPOINT = 'set -e -x\n[ -f startup-hook.sh ] && source startup-hook.sh\nset +x\npython3 -c "$1"'
"""What Determined's does, as far as it matters here."""


class Trials:
    """Runs of training code, each in a new container: a new work directory."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        bin_ = folder / "bin"
        bin_.mkdir(parents=True)
        (bin_ / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (bin_ / "python3").chmod(0o755)
        path = f"{bin_}:{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(CHECKOUT), "HOME": str(folder)}
        self.environment = {**environment, **own}

    def run(self, output: Path, code: str = READ) -> tuple[int, str, str]:
        """Submit what was emitted, as ``det experiment create OUT/experiment.yaml OUT``."""
        work = Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(output, work, dirs_exist_ok=True)
        config = YAML(typ="safe").load(work / "experiment.yaml")
        variables = config.get("environment", {}).get("environment_variables", [])
        done = subprocess.run(
            ["bash", "-c", ENTRYPOINT, "entrypoint", code],
            cwd=work,
            env={
                **self.environment,
                "DET_EXPERIMENT_CONFIG": json.dumps(config),
                **dict(each.split("=", 1) for each in variables),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def read(self, lab: Lab) -> dict[str, Any]:
        """The config of a trial that has read what was published."""
        status, out, err = self.run(lab.output)
        assert status == 0, err
        read = json.loads(out.splitlines()[-1])
        published = lab.newest()
        assert read["version"] == published.version.id
        assert read["found"] == {
            split: [[s.key, s.label, {e: p.hex() for e, p in s.parts.items()}] for s in samples]
            for split, samples in published.samples.items()
        }
        return document(lab)


def document(lab: Lab) -> dict[str, Any]:
    config: dict[str, Any] = YAML(typ="safe").load(lab.output / "experiment.yaml")
    return config


def delivered(lab: Lab, delivery: str, **cluster: Any) -> dict[str, Any]:
    return lab.prepare(experiment={"delivery": delivery}, cluster=cluster)


def downloads(tmp_path: Path) -> dict[str, Any]:
    """As on a node, where host and container see it under the same path."""
    path = str(tmp_path / 'node/it\'s `id`; & "here"')
    return {"downloads": {"host_path": path, "container_path": path}}


def variables(lab: Lab) -> dict[str, str]:
    entries = document(lab)["environment"]["environment_variables"]
    return dict(entry.split("=", 1) for entry in entries)


FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 6_000},
    "splits": {"training": ["a/**", "b/**"], "validation": "c/**"},
}


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    return Trials(tmp_path / "trials", {})


@pytest.fixture
def directory(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path, cache=None, **FIELDS)


@pytest.fixture
def bucket(rclone_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A storage in a bucket, with what S3 allows in keys and shells do not."""
    for name, value in rclone_server.environment.items():
        if name.startswith("AWS_") and name not in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, value)
    rclone_server.create_bucket("deliveries")
    source = tmp_path / "source"
    write(source, images())
    storage = {
        "url": f's3://deliveries/{tmp_path.name}/it\'s $HOME `id` & "us"; 100%',
        **reach(rclone_server),
    }
    return Lab(str(source), storage, tmp_path / "out", {"mirror": False, **FIELDS})


@pytest.fixture
def node(rclone_server: S3Server, tmp_path: Path) -> Trials:
    """Trials whose containers have credentials for the bucket."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED")
    return Trials(tmp_path / "trials", {name: rclone_server.environment[name] for name in names})


@pytest.mark.parametrize("delivery", ["bucket", *at_push("stream", "download")])
def test_what_is_in_a_bucket_is_read(bucket, node, tmp_path, delivery):
    delivered(bucket, delivery, nodes=downloads(tmp_path))
    data = node.read(bucket)["data"]
    assert data["bucket"] == "deliveries"
    assert bucket.root == f"s3://{data['bucket']}/{data['prefix']}"
    assert ("path" in data) == (delivery == "download")


@pytest.mark.parametrize("delivery", ["bind_mount", *at_push("volume", "inline")])
def test_what_is_in_a_directory_is_read(directory, trials, tmp_path, delivery):
    mount = {"host_path": str(tmp_path), "container_path": str(tmp_path), "claim": "data"}
    delivered(directory, delivery, nodes={"mounts": [mount]})
    config = trials.read(directory)
    assert ("bind_mounts" in config) == (delivery == "bind_mount")
    assert ("environment" in config) == (delivery == "volume")
    for facts in config["data"]["splits"].values():
        assert (directory.output / facts["indexes"]["wids"]).exists(), "or absolute"


@pytest.mark.push
def test_a_cache_is_kept_on_the_node(bucket, node, tmp_path):
    bucket = replace(bucket, fields={**bucket.fields, "cache": {"records": "encoded"}})
    delivered(bucket, "cache", nodes=downloads(tmp_path))
    config = document(bucket)
    kept = Path(config["bind_mounts"][0]["host_path"])
    assert config["bind_mounts"][0]["read_only"] is False
    code = "import larder; print(len(larder.open().cache('training')))"
    assert node.run(bucket.output, code)[:2] == (0, "8\n")
    files = {path: path.stat().st_mtime_ns for path in kept.glob("cache/*.mdb")}
    assert files
    assert node.run(bucket.output, code)[:2] == (0, "8\n"), "the next trial on that node"
    assert files == {path: path.stat().st_mtime_ns for path in kept.glob("cache/*.mdb")}


def hook_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("startup-hook.sh: ")]


@pytest.mark.push
def test_an_image_whose_python_is_too_old_gets_the_shards_without_larder(bucket, node, tmp_path):
    searcher = {**TEMPLATE["searcher"], "max_length": {"batches": 1}}
    template = {**TEMPLATE, "searcher": searcher}
    bucket = replace(bucket, fields={**bucket.fields, "template": template})
    old = {"consumer": {"release": "0.19.9"}, "nodes": downloads(tmp_path)}
    delivered(bucket, "download", **old)
    script = (bucket.output / "startup-hook.sh").read_text()
    ast.parse(script.partition("<<'PYTHON'\n")[2].partition("\nPYTHON")[0], feature_version=(3, 6))
    data = document(bucket)["data"]
    assert node.run(bucket.output, "")[0] == 0
    shards = sorted(bucket.newest().shards)
    copy = Path(data["path"])
    assert sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.tar")) == shards
    assert all(Path(split["indexes"]["wids"]).exists() for split in data["splits"].values())
    with larder_error("config.invalid_value") as caught:
        delivered(bucket, "stream", **old)
    assert "Larder needs Python 3.10" in caught.value.message
    (copy / shards[0]).unlink()
    with bucket.opened_root() as root:
        root.put(shards[0], root.get(shards[0])[1:])
    before = (copy / shards[1]).stat().st_mtime_ns
    status, _, err = node.run(bucket.output, "")
    assert (status, hook_lines(err)) == (
        1,
        [f"startup-hook.sh: {shards[0]}: its sha256 is another than published"],
    )
    assert not (copy / shards[0]).exists()
    assert (copy / shards[1]).stat().st_mtime_ns == before


@pytest.fixture
def downloaded(bucket: Lab, tmp_path: Path) -> Lab:
    """A version that a hook downloads into a directory that the trials of a node share."""
    delivered(bucket, "download", nodes=downloads(tmp_path))
    return bucket


def test_damage_fails_the_trial(downloaded, node):
    with downloaded.opened_root() as root:
        key = next(info.key for page in root.list() for info in page if "tar" in info.key)
        data = root.get(key)
        root.put(key, bytes([data[0] ^ 1]) + data[1:])
    status, out, err = node.run(downloaded.output)
    assert (status, "{" in out) == (1, False)
    assert "Traceback" not in err
    assert "sha256" in err
    assert not list(Path(document(downloaded)["data"]["path"]).rglob("version.json"))


def test_no_secret_is_printed(downloaded, node):
    status, out, err = node.run(downloaded.output)
    assert status == 0
    secret = node.environment["AWS_SECRET_ACCESS_KEY"]
    assert secret not in out + err
    assert "python3 -" not in err, "no command is traced"
    assert secret not in (downloaded.output / "startup-hook.sh").read_text()
    assert "deliveries" in hook_lines(out)[0]


@pytest.mark.push
def test_the_hook_leaves_nothing_behind_in_the_shell(downloaded, node):
    work = node.folder / "plain"
    shutil.copytree(downloaded.output, work)
    state = 'compgen -v | grep -vE "^(BASH|FUNCNAME|PIPESTATUS|_$)"; pwd; set +o'
    script = f"({state}) >before; source startup-hook.sh; ({state}) >after; diff before after"
    done = subprocess.run(
        ["bash", "-e", "-x", "-c", script],
        cwd=work,
        env={**node.environment, **variables(downloaded)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.push
def test_a_trial_without_the_hook_or_larder_is_told(downloaded, node):
    (node.folder / "bin/python3").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    status, _, err = node.run(downloaded.output)
    assert (status, "Larder is not in this image" in hook_lines(err)[0]) == (1, True)
    (node.folder / "bin/python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (downloaded.output / "startup-hook.sh").unlink()
    status, _, err = node.run(downloaded.output)
    assert status == 1
    assert "/versions" in err.splitlines()[-1]
    assert "startup-hook.sh" in err.splitlines()[-1]


def test_another_delivery_removes_the_hook_but_none_of_the_user(downloaded):
    hook = downloaded.output / "startup-hook.sh"
    assert hook.exists()
    run = delivered(downloaded, "stream")
    assert not hook.exists()
    assert run["configs"] == [str(downloaded.output / "experiment.yaml")]
    assert run["command"].endswith("experiment.yaml MODEL_DIR")
    hook.write_text("pip install of-mine\n")
    with larder_error("config.path", str(hook)):
        delivered(downloaded, "download")
    delivered(downloaded, "stream")
    assert hook.read_text() == "pip install of-mine\n"


def test_a_new_version_takes_the_place_of_the_old_beside_the_model_code(directory, trials):
    delivered(directory, "inline")
    before = set(directory.output.rglob("*.tar"))
    min(before).write_bytes(b"")  # it was not finished
    (directory.output / "data/larder.json").unlink()
    (directory.output / "data/larder.json").write_text("")
    delivered(directory, "inline")
    trials.read(directory)
    write(str(directory.source), {"a/00.png": images()["b/00.png"]})
    with (directory.output / "data/larder/d/old.tar").open("wb") as file:
        file.truncate(CONTEXT_BYTES)
    delivered(directory, "inline", memory={"tables_bytes": "300 MB"})
    trials.read(directory)
    published = directory.newest()
    names = {path.name for path in directory.output.rglob("*.tar")}
    assert names == {path.rpartition("/")[2] for path in published.shards}
    assert before != set(directory.output.rglob("*.tar"))


@pytest.mark.parametrize("limit", [CONTEXT_BYTES, 100_000])
def test_model_code_and_data_have_one_limit(directory, limit):
    consumer = {"kind": "determined", "limits": {"context_bytes": limit}}
    mine = directory.output / "data/larder/d"
    mine.mkdir(parents=True)
    with larder_error("config.path", str(mine)):  # a directory of the user is not replaced
        delivered(directory, "inline", consumer=consumer)
    shutil.rmtree(directory.output / "data")
    with (directory.output / "weights.bin").open("wb") as file:
        file.truncate(limit - 3)
    with larder_error("config.invalid_value", "experiment.delivery"):
        delivered(directory, "inline", consumer=consumer)
    (directory.output / ".detignore").write_text("*.bin\n")
    run = delivered(directory, "inline", consumer=consumer)
    config = directory.output / "experiment.yaml"
    assert run["command"] == f"det experiment create {config} {directory.output}"


@pytest.mark.push
@pytest.mark.parametrize("claim", [None, "team-data"])
def test_a_trial_reads_the_copy_on_its_node(claim, tmp_path):
    directory = directory_lab(tmp_path, cache=None)
    storage = str(tmp_path / "local")
    mount = {"host_path": storage, "container_path": storage, "claim": claim}
    nodes = {"mounts": [mount], **downloads(tmp_path)}
    delivered(directory, "download", nodes=nodes)
    config = Trials(tmp_path / "trials", {}).read(directory)
    copy = Path(config["data"]["path"])
    assert copy.is_relative_to(nodes["downloads"]["container_path"])
    assert sorted(path.name for path in copy.rglob("*.tar")) == sorted(
        Path(shard).name for shard in directory.newest().shards
    )


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
