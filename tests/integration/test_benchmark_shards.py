"""The benchmark of shards runs, checks what was packed, and says what it should where it should."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.packing.bodies import Body, Setting
from benchmarks.packing.checks import CHECKS, check_all
from benchmarks.packing.ours import turn, turn_of_two

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
KINDS = {"webdataset": "tar", "tfrecord": "tfrecord", "recordio": "recordio", "parquet": "parquet"}

needs_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")


def run(folder: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """The cases of one small run, and what it said."""
    every = ["--runs", "1", "--directory", str(folder), "--json", *flags]
    command = [sys.executable, "-m", "benchmarks.shards", *every]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert document["benchmark"] == "shards"
    for case in document["cases"].values():
        assert set(case) == {"ours", "peers", "target", "met"}
        assert case["ours"] > 0
    assert list(folder.iterdir()) == []
    return document["cases"], done.stderr


@pytest.mark.slow
@needs_tar
def test_a_small_run_prints_one_document(tmp_path: Path) -> None:
    cases, said = run(
        tmp_path, "--files-scale", "0.002", "--only", "tar-large", "--only", "tar-small"
    )
    bodies = {"110 KB files": (1.1, 0.8), "1 KB files": (2.5, 1.3)}
    assert list(cases) == [
        f"{what}, {body}, {measure}"
        for body in bodies
        for measure in ("synced", "unsynced")
        for what in ("tar", "tar by two processes")
    ]
    for name, case in cases.items():
        body = name.split(", ")[1]
        assert list(case["peers"])[:2] == ["GNU tar", "webdataset ShardWriter"]
        assert case["target"] == bodies[body]["two" in name]
        assert case["met"] == (case["ours"] <= case["target"] * case["peers"]["GNU tar"])
    assert "where ours goes" in said


@pytest.mark.slow
@needs_tar
def test_a_small_run_of_the_others(tmp_path: Path) -> None:
    asked = ("formats-small", "s3", "litdata", "memory-many", "memory-mirrored", "memory-parquet")
    flags = [flag for name in asked for flag in ("--only", name)]
    cases, said = run(tmp_path, "--files-scale", "0.0005", *flags)
    for name in ("tfrecord", "recordio", "parquet"):
        assert cases[f"{name} beside tar, 1 KB files, synced"]["peers"]["our tar"] > 0
    assert cases["S3 to S3, until it ends"]["target"] == 1.25
    assert cases["S3 to S3, until it ends"]["peers"]["larder copy"] > 0
    many, large = "500 samples of about 100 bytes", "2 samples of 100 MB, Parquet"
    for name, which in product(
        (many, f"{many}, shuffled, mirror", large), ("largest process", "all processes")
    ):
        memory = cases[f"{name}: peak bytes of memory, {which}"]
        assert 20e6 < memory["ours"] < 400e6
        assert memory["met"] is True
    assert "litdata optimize is not installed" in said


@needs_tar
@pytest.mark.parametrize("name", KINDS)
def test_packing_by_one_and_by_two_is_whole(name: str, tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.prepare(Body("files", 12, 2_000))
    for pack in (turn, turn_of_two) if name in ("webdataset", "tfrecord") else (turn,):
        setting.clear()
        assert set(pack(setting, name)) == {"synced", "unsynced"}
        check_all(KINDS[name], setting, 12)
        with pytest.raises(AssertionError, match="12 samples of 13 were written"):
            check_all(KINDS[name], setting, 13)


def _lost(path: Path) -> None:
    path.unlink()


def _changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700:1_500] = bytes(800)
    path.write_bytes(data)


@needs_tar
@pytest.mark.parametrize("harm", [_lost, _changed])
@pytest.mark.parametrize("name", ["webdataset", "tfrecord", "recordio"])
def test_what_was_not_written_is_found(
    name: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    setting = Setting(tmp_path)
    setting.prepare(replace(Body("files", 6, 4_000), sigma=0.0))
    setting.clear()
    turn(setting, name)
    (shard,) = (
        path
        for path in setting.out.iterdir()
        if "-train-" in path.name and path.suffix not in (".idx", ".lst")
    )
    harm(shard)
    with pytest.raises(AssertionError):
        CHECKS[KINDS[name]](setting)
