"""Loaders of prepared versions: from caches and shards, from a directory and from a bucket."""

import errno
import json
import logging
import os
import pickle
import random
import resource
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import saved
from PIL import Image
from pipeline_lab import Lab, directory_lab, images, png
from required import at_push

import larder
from larder import Choice, Images, Reading, Shuffle
from larder.errors import ConfigError, FatalError
from larder.readers import address, batch_decoding, split
from larder.readers.launcher import LAUNCHERS
from tests.support.errors import larder_error
from tests.support.processes import run_python

OBJECTS = images("abc", each=9)
SPLITS = {"train": ["a/**", "b/**"], "validation": "c/**"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """With a cache of the split train."""
    lab = directory_lab(tmp_path_factory.mktemp("loader"), OBJECTS, splits=SPLITS)
    lab.prepare()
    return lab


@pytest.fixture(scope="module")
def without_cache(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same samples."""
    folder = tmp_path_factory.mktemp("without")
    other = Lab(lab.source, str(folder / "local"), folder / "out", {**lab.fields, "cache": None})
    other.prepare()
    return other


def opened(lab: Lab):
    return larder.open(f"{lab.storage}/larder/d")


def keys(loader):
    return [batch["key"] for batch in loader]


def test_a_loader_from_a_cache_does_not_open_the_index_of_shards(lab, monkeypatch):
    def refused(*_: object) -> None:
        raise AssertionError("the index was opened")

    monkeypatch.setattr(split, "SegmentIndex", refused)
    loader = opened(lab).loader("train", batch_size=4, shuffle=True)
    assert loader.state_dict()["order"]["kind"] == "full"
    assert len(list(chain(*keys(loader)))) == 18


@pytest.mark.parametrize("name", ["collate", "reading", "choose"])
def test_what_is_no_function_or_option_is_refused(without_cache, name):
    with larder_error("config.invalid_value", name):
        opened(without_cache).loader("train", batch_size=2, **{name: 1})


def test_a_version_without_a_cache(without_cache):
    with larder_error("cache.missing"):
        opened(without_cache).cache("train")


def test_labels_and_keys_are_read_from_the_index(without_cache, monkeypatch):
    def refused(*_: object) -> None:
        raise AssertionError("a shard was read")

    monkeypatch.setattr(split.SplitSamples, "_read", refused)
    data = opened(without_cache)
    assert data.labels("validation").dtype == np.int64
    assert len(data.keys("validation")) == 9
    balanced = Choice({"label": "a"}, limit=4, weights="balanced")
    loader = data.loader("train", batch_size=2, choose=balanced)
    assert all(key.startswith("a/") for key in loader.keys(1, 1))


def test_a_state_of_a_tag_names_the_version_and_serves_any_form(lab, without_cache):
    """What reads from shards goes on in the order of what read from a bucket or a cache."""
    data = opened(without_cache)
    ranks = [
        data.loader("train", batch_size=6, shuffle=Shuffle("window"), rank=rank, world=2)
        for rank in range(2)
    ]
    whole = data.loader("train", batch_size=6, shuffle=Shuffle("window"))
    expected = keys(whole)
    taken = [[next(batches)["key"] for batches in map(iter, ranks)]]
    state = json.loads(json.dumps(ranks[0].state_dict()))
    assert state["version"] == data.version
    assert [list(chain(*batch)) for batch in taken] == expected[:1]
    again = pickle.loads(pickle.dumps(data)).loader("train", batch_size=6, shuffle=True)
    again.load_state_dict(state)
    assert keys(again) == expected[1:]
    with pytest.raises(ConfigError) as caught:
        opened(lab).loader("train", batch_size=6, shuffle=True).load_state_dict(state)
    assert "version" in caught.value.message


def reversed_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])


def exchanged(path: Path) -> None:
    """By another, of equal length but in Parquet."""
    others = [each for each in path.parent.glob(f"*{path.suffix}") if each != path]
    shutil.copy(others[0], path)


@pytest.fixture(scope="module", params=["webdataset", *at_push("parquet", "batches")])
def three_shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    objects = {f"a/{number:02}.bin": random.Random(number).randbytes(500) for number in range(18)}
    shards = {"samples_per_shard": 6, "format": request.param}
    fields = {"cache": None, "validate": "none", "labels": None, "shards": shards}
    lab = directory_lab(tmp_path_factory.mktemp("three"), objects, **fields)
    lab.prepare()
    return lab.folder


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (reversed_file, "damage.digest"),
        (exchanged, "damage.digest"),
        (lambda path: os.truncate(path, 1_000), "damage.digest"),
        (Path.unlink, "object.missing"),
    ],
)
@pytest.mark.parametrize("was_read", [False, *at_push(True)])
def test_a_shard_that_is_another_one_is_named_and_not_skipped(
    tmp_path, three_shards, change, code, was_read
):
    folder = shutil.copytree(three_shards, tmp_path / "larder/d")
    data = larder.open(str(folder))
    loader = data.loader("train", batch_size=9, shuffle=True, reading=Reading(on_error="skip"))
    samples = data.samples_of("train", check="never" if was_read else "always")
    if was_read:
        samples.batch(range(len(samples)))
    shards = (path for path in folder.glob("segments/*/shards/train/*") if path.is_file())
    path = max(shards, key=lambda path: path.stat().st_size)
    change(path)
    with larder_error(code):
        keys(loader)
    with larder_error(code, f"file://{path}"):
        samples.batch(range(len(samples)))


@pytest.mark.parametrize("format_", ["webdataset", *at_push("parquet")])
def test_too_many_open_files_are_an_error_that_names_the_limit(tmp_path, monkeypatch, format_):
    fields = {"cache": None, "shards": {"bytes": 2_000, "format": format_}}
    lab = directory_lab(tmp_path, images("ab", each=9), **fields)
    lab.prepare()
    loader = opened(lab).loader("train", batch_size=6, reading=Reading(on_error="skip"))
    assert len(keys(loader)) == len(loader)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_file = os.open

    def refused_open(path: Any, *arguments: Any, **options: Any) -> int:
        if "shards" in os.fsdecode(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused_open)
    with pytest.raises(FatalError, match=f"{limit:,}") as caught:
        keys(loader)
    assert caught.value.code == "run.limit"
    assert "ulimit -n" in caught.value.hint
    assert loader.skipped.count == 0


WRONG = {
    "rank": {"rank": 2, "world": 2},
    "world": {"world": 0},
    "on_error": {"reading": Reading(on_error="ignore")},
    "choose": {"choose": {"label": "b"}},
    "check": {"reading": Reading(check="sometimes")},
    "memory_bytes": {"reading": Reading(memory_bytes="much")},
    "keep_bytes": {"reading": Reading(keep_bytes="1 GB")},
    "shuffle": {"shuffle": Shuffle("random")},
    "masks": {"decode": Images(False, ["png"])},
    "size": {"size": 10},
    "transforms": {"transforms": {"jpeg": len}},
}


def refused(lab, where, **options):
    with larder_error("config.invalid_value", where):
        opened(lab).loader("train", batch_size=4, **options)


@pytest.mark.parametrize("where", WRONG)
def test_wrong_options_are_refused(lab, without_cache, where):
    refused(lab, where, **WRONG[where])
    refused(without_cache, where, **WRONG[where])


@pytest.mark.parametrize("shuffle", ["window", 1, None])
def test_a_shuffle_is_true_or_a_value(lab, shuffle):
    refused(lab, "shuffle", shuffle=shuffle)


def test_a_size_is_for_images_that_are_decoded_when_they_are_read(lab, without_cache):
    refused(lab, "size", decode=True, size=5)
    loader = opened(without_cache).loader("train", batch_size=4, decode=True, size=5)
    assert next(iter(loader))["image"].shape == (4, 5, 5, 3)


def test_bytes_may_be_numbers_of_numpy(without_cache, tmp_path):
    data, number = opened(without_cache), np.int64(1 << 20)
    reading = Reading(keep=tmp_path, keep_bytes=number, memory_bytes=number)
    loader = data.loader("train", batch_size=4, reading=reading)
    assert len(keys(loader)) == 5


IMAGES = {f"{'ab'[number % 2]}/{number:02}.png": png(number, 200, 200) for number in range(12)}


IMPORTED = """
import sys, larder
loader = larder.open(sys.argv[1]).loader("train", batch_size=4, **eval(sys.argv[2]))
before = set(sys.modules)
list(loader)
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.push
@pytest.mark.parametrize("cache", [{"records": "decoded"}, None], ids=["cache", "shards"])
def test_threads_that_read_import_nothing(tmp_path, cache):
    """A child that is forked during an import waits for that module for ever."""
    lab = directory_lab(tmp_path, IMAGES, validate="decode", cache=cache)
    lab.prepare()
    options: dict[str, Any] = {} if cache else {"decode": True, "size": 32}
    done = run_python("-c", IMPORTED, f"{lab.storage}/larder/d", options)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(("kind", "size"), [("JPEG", None), ("PNG", 40)])
def test_a_loader_has_the_limit_that_images_were_checked_with(tmp_path, size, kind, monkeypatch):
    objects = {"a.png": saved(Image.new("RGB", (30, 30)), kind)}
    for module in (split, batch_decoding):
        monkeypatch.setattr(module, "MAX_PIXELS", 100)
    fields = {"labels": None, "cache": None, "validate": "none"}

    def keys(limit: int) -> list[object]:
        lab = directory_lab(tmp_path / str(limit), objects, images={"max_pixels": limit}, **fields)
        lab.prepare()
        data = larder.open(f"{lab.storage}/larder/d")
        loader = data.loader("train", batch_size=1, decode=True, size=size)
        return [batch["key"] for batch in loader]

    assert keys(900) == [["a"]]
    with larder_error("sample.undecodable", "a.png"):
        keys(899)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    fields = {"splits": {"a": "**"}, "validate": "none", "cache": None}
    lab = directory_lab(tmp_path_factory.mktemp("lab"), {"a/1.bin": b"1"}, **fields)
    lab.prepare()
    return f"{lab.storage}/larder/d"


@pytest.mark.parametrize(
    ("variables", "warnings"),
    [
        ("", 0),
        ("RANK=0 WORLD_SIZE=1", 0),
        ("RANK=1 WORLD_SIZE=4", 1),
        ("WORLD_SIZE=4", 1),
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", 1),
        ("RANK=0 WORLD_SIZE=1 SLURM_PROCID=1 SLURM_NTASKS=2", 1),
        ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", 0),
        ('SM_HOSTS=["a","b"] SM_CURRENT_HOST=b', 1),
    ],
)
def test_a_rank_that_opens_a_tag_is_warned_once(root, variables, warnings, monkeypatch, caplog):
    for variable in (*sum(LAUNCHERS, ()), "SLURM_JOB_ID", "SLURM_STEP_ID", "SM_HOSTS"):
        monkeypatch.delenv(variable or "SM_CURRENT_HOST", raising=False)
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("=", 1))
    address._warn_of_tag.cache_clear()
    with caplog.at_level(logging.WARNING, "larder"):
        version = larder.open(f"{root}@{larder.open(root).version}").version
        larder.open(f"{root}@{version[:8]}")
        larder.open(f"{root}@latest")
    assert [f"open {root}@{version}," in each for each in caplog.messages] == [True] * warnings
