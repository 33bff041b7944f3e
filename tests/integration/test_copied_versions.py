"""Versions copied to a directory, from where they are read without the storage."""

import json
import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, flip, images, reach, write
from required import at_push
from ruamel.yaml import YAML

import larder
from larder.cli.main import dispatch
from larder.config.load import load_template
from larder.config.models.cluster import Limits
from larder.config.patterns import expand_braces
from larder.errors import ConfigError
from larder.experiments.advice import advise
from larder.experiments.consumers.registry import consumer_configs
from larder.experiments.facts import Facts
from larder.readers.data import Data
from larder.store import download
from larder.store.own_files import read_digest
from tests.support.errors import larder_error
from tests.support.processes import run_python


def killed_while_it_copies(copy: Callable[[Path], object], folder: Path, after: int) -> None:
    """Copy to a folder, in a process that is killed within the file after so many."""

    def deadly(store: Any, key: str, write: Callable[[Any], object]) -> Any:
        nonlocal after
        after -= 1
        if after < 0:
            write(b"begun")
            os.kill(os.getpid(), signal.SIGKILL)
        return read_digest(store, key, write)

    def run() -> None:
        download.read_digest = deadly  # type: ignore[assignment]
        copy(folder)

    killed = multiprocessing.get_context("fork").Process(target=run)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL


CONFIGS = Path(__file__).parents[2] / "configs"
FIELDS: dict[str, Any] = {"splits": {"training": ["a/**", "b/**"], "validation": "c/**"}}


def lab_of(folder: Path, objects: dict[str, bytes] | None = None, **fields: Any) -> Lab:
    lab = directory_lab(folder, objects, **{**FIELDS, **fields})
    lab.prepare()
    return lab


def opened(lab: Lab) -> Data:
    return larder.open(f"{lab.storage}/larder/d")


def read(data: Data) -> dict[str, list[Any]]:
    return {split: list(data.samples(split)) for split in data.splits}


@pytest.mark.parametrize("name", ["parquet", *at_push("webdataset", "recordio")])
def test_a_copy_needs_no_storage(tmp_path, name):
    pictures = {key: data for key, data in images().items() if key.endswith("png")}
    lab = lab_of(tmp_path, pictures, shards={"format": name, "samples_per_shard": 3})
    data = opened(lab)
    samples = read(data)
    with data.cache("training") as cache:
        records = [record["key"] for record in cache]
    place = data.copy_to(tmp_path / "it's here")
    assert place == tmp_path / "it's here/larder/d/versions" / data.version
    shutil.rmtree(str(lab.storage))
    copied = larder.open(place)
    assert read(copied) == samples
    with copied.cache("training", verify=True) as cache:
        assert [record["key"] for record in cache] == records
    batch = next(iter(copied.loader("training", batch_size=4)))
    assert batch["key"] == records[:4]


def test_a_command_copies_what_training_opens(tmp_path, capsys):
    lab = lab_of(tmp_path)
    data, folder = opened(lab), tmp_path / "copy"
    warm = ["warm", f"{lab.storage}/larder/d@{data.version}", "--to", str(folder)]
    assert dispatch([*warm, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert read(larder.open(document["location"])) == read(data)
    assert (document["dataset"], document["version"]) == ("d", data.version)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.tar")}
    assert dispatch(warm) == 0
    assert capsys.readouterr().out == f"{document['location']}\n"
    assert times == {path: path.stat().st_mtime_ns for path in folder.rglob("*.tar")}
    with larder_error("config.invalid_flag"):
        dispatch(warm[:2])


def test_only_what_readers_read_is_copied(tmp_path):
    """Shards without a sample of the version are not, nor are manifests."""
    lab = lab_of(tmp_path, growth={"removals": "omit"}, shards={"samples_per_shard": 1})
    write(str(lab.source), {"a/zz.png": images()["b/01.png"]})
    Path(str(lab.source), "a/01.png").unlink()
    lab.prepare()
    data = opened(lab)
    samples = read(data)
    shards = {path.name for path in lab.files("*.tar")}
    root = data.copy_to(tmp_path / "copy").parents[1]
    copied = {path.name for path in root.rglob("*.tar")}
    assert len(shards - copied) == 1
    assert not copied - shards
    assert not list(root.rglob("*.parquet"))
    assert read(larder.open(root / "versions" / data.version)) == samples


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path):
    """The folder that is written to may be one: that of the dataset, or of a download."""
    data = opened(lab_of(tmp_path))
    outside = tmp_path / "outside"
    for inside in ("larder/d/segments", "training", "validation", "larder/d"):
        folder = tmp_path / "copies" / inside.replace("/", "-")
        outside.mkdir(exist_ok=True)
        (folder / inside).parent.mkdir(parents=True)
        (folder / inside).symlink_to(outside)
        if inside == "larder/d":
            assert read(larder.open(data.copy_to(folder))) == read(data)
            continue
        with pytest.raises(ConfigError) as caught:
            (data.copy_to if "larder" in inside else data.download)(folder)
        assert (caught.value.code, list(outside.iterdir())) == ("config.path", [])
        assert inside in caught.value.where


def test_versions_share_what_is_there(tmp_path, monkeypatch):
    lab = lab_of(tmp_path)
    first = opened(lab)
    place = first.copy_to(tmp_path / "copy")
    write(str(lab.source), {"a/zz.png": images()["b/01.png"]})
    lab.prepare()
    second = opened(lab)
    before = {path: path.stat().st_mtime_ns for path in place.parents[1].rglob("*.tar")}
    assert second.copy_to(tmp_path / "copy") != place
    assert (
        before.items()
        <= {path: path.stat().st_mtime_ns for path in place.parents[1].rglob("*.tar")}.items()
    )
    for data in (first, second):
        assert read(larder.open(place.parent / data.version)) == read(data)
    monkeypatch.setattr(download, "read_digest", None)
    second.copy_to(tmp_path / "copy")


@pytest.mark.parametrize("after", [3, *at_push(0, 6)])
def test_a_copy_that_was_killed_goes_on(tmp_path, after):
    data = opened(lab_of(tmp_path))
    folder = tmp_path / "copy"
    killed_while_it_copies(data.copy_to, folder, after)
    address = folder / "larder/d/versions" / data.version
    with larder_error("version.missing"):
        larder.open(address)
    data.copy_to(folder)
    assert read(larder.open(address)) == read(data)
    assert not list(folder.rglob(".larder-tmp-*"))


@pytest.mark.push
def test_many_copy_at_once(tmp_path):
    data = opened(lab_of(tmp_path))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        places = pool.map(data.copy_to, [tmp_path / "copy"] * 6, chunksize=1)
    assert read(larder.open(places[0])) == read(data)


def test_damage_makes_no_version(tmp_path):
    lab = lab_of(tmp_path)
    data = opened(lab)
    flip(lab.files("segments/*/shards/training/*.tar")[0])
    with larder_error("damage.digest"):
        data.copy_to(tmp_path / "copy")
    assert not list((tmp_path / "copy").rglob("version.json"))


def test_a_light_install_copies(tmp_path):
    """As in the image of a trial: what only preparing needs is not imported."""
    address = f"{lab_of(tmp_path).storage}/larder/d"
    code = (
        "import sys, larder; larder.open(sys.argv[1]).copy_to(sys.argv[2])\n"
        "print({'duckdb', 'pathspec', 'pyarrow', 'pydantic', 'ruamel.yaml'} & sys.modules.keys())"
    )
    done = run_python("-c", code, address, tmp_path / "copy")
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.push
def test_the_init_container_of_a_job_downloads_what_its_variables_name(
    rclone_server, tmp_path, monkeypatch
):
    for name, value in rclone_server.environment.items():
        monkeypatch.setenv(name, value)
    rclone_server.create_bucket("warm")
    write(str(tmp_path / "source"), images())
    storage = {"url": f"s3://warm/{tmp_path.name}", **reach(rclone_server)}
    lab = Lab(str(tmp_path / "source"), storage, tmp_path / "out", FIELDS)
    path = str(tmp_path / "node")
    nodes = {"downloads": {"host_path": path, "container_path": path}}
    lab.prepare(
        experiment={"delivery": "download"},
        cluster={"consumer": {"kind": "kubernetes"}, "nodes": nodes},
        template=load_template(CONFIGS, "kubernetes/default.yaml"),
    )
    job = YAML(typ="safe").load(lab.output / "job.yaml")["spec"]["template"]["spec"]
    (warming,), (training,) = job["initContainers"], job["containers"]
    assert dispatch(warming["command"][1:]) == 0
    variables = {each["name"]: each["value"] for each in training["env"]}
    shards = expand_braces(variables["LARDER_SHARDS_TRAINING"])
    assert all(Path(shard).exists() for shard in shards)
    assert larder.open(variables["LARDER_LOCATION"]).splits.keys() == {"training", "validation"}


def test_a_version_that_omits_samples_is_copied_as_advised(tmp_path):
    lab = directory_lab(tmp_path, cache=None, growth={"removals": "omit"})
    lab.prepare()
    lab.remove("a/01.png")
    lab.prepare()
    facts = Facts("determined", consumer_configs("determined").DELIVERIES, 10**9, 10, omitted=1)
    bucket = advise(facts, Limits()).choose("bucket", where="")
    (call,) = re.findall(r"larder\.open\(\)\.(\w+)\(DIRECTORY\)", bucket.deciding.sentence)
    data = larder.open(lab.root)
    copy = larder.open(getattr(data, call)(tmp_path / "node"))
    found = {split: sorted(key for key, *_ in copy.samples(split)) for split in copy.splits}
    assert found == {split: sorted(key for key, *_ in data.samples(split)) for split in data.splits}
    assert sum(map(len, found.values())) == 11
