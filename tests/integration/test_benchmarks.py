"""The benchmarks run, print their documents, and check what was packed."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from required import at_night

from benchmarks.cores import CASES
from benchmarks.packing.bodies import Body, Setting
from benchmarks.packing.checks import check_all
from benchmarks.packing.ours import turn, turn_of_two
from tests.support.processes import run_python

pytestmark = pytest.mark.push

KINDS = {"webdataset": "tar", "tfrecord": "tfrecord", "recordio": "recordio", "parquet": "parquet"}

needs_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")


def run(name: str, folder: Path, *flags: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The cases of a small run, and what it says beside them."""
    arguments = ("-m", f"benchmarks.{name}", "--json", "--directory", folder, *flags)
    done = run_python(*arguments, **environment)
    assert done.returncode == 0, done.stderr[-2_000:]
    document = json.loads(done.stdout)
    assert document["benchmark"] == name
    assert list(folder.iterdir()) == []
    cases: dict[str, Any] = document["cases"]
    assert all(set(case) == {"ours", "peers", "target", "met"} for case in cases.values())
    return cases, done.stderr


def check_targets(cases: dict[str, Any]) -> None:
    for name, case in cases.items():
        first = next(iter(case["peers"].values()), None)
        met = None if case["target"] is None else case["ours"] / first <= case["target"]
        assert case["met"] is met, name


def images(folder: Path) -> None:
    cases, _ = run("images", folder, "--runs", "1", "--files-scale", "0.004")
    assert len(cases) == 6
    assert all(case["ours"] > 0 and case["peers"] for case in cases.values())


def cores(folder: Path) -> None:
    flags = ("--runs", "1", "--files-scale", "0.002", "--cores", "1")
    cases, said = run("cores", folder, *flags)
    assert [name.partition(",")[0] for name in cases] == CASES
    assert "CPU ms an object" in said


def advice(folder: Path) -> None:
    cases, said = run("advice", folder, "--runs", "1", "--files-scale", "0.05")
    assert len(cases) >= 10
    assert all(case["ours"] >= 0 and case["peers"]["measured"] > 0 for case in cases.values())
    assert "a request takes" in said


def orchestration(folder: Path) -> None:
    flags = ("--runs", "1", "--files-scale", "0.02", "--only", "files")
    cases, said = run("orchestration", folder, *flags)
    assert "load at the end" in said
    assert cases["60 files: task runs"]["met"]
    assert cases["60 files: share of a job of ten minutes"]["ours"] > 0


def shards(folder: Path) -> None:
    asked = ("tar-small", "formats-small", "s3", "memory-many", "memory-mirrored", "memory-parquet")
    flags = [flag for name in asked for flag in ("--only", name)]
    cases, said = run("shards", folder, "--runs", "1", "--files-scale", "0.0005", *flags)
    check_targets({name: case for name, case in cases.items() if name.startswith("tar, ")})
    peers = list(cases["tar, 1 KB files, synced"]["peers"])
    assert peers[:2] == ["GNU tar", "webdataset ShardWriter"]
    for name in ("tfrecord", "recordio", "parquet"):
        assert cases[f"{name} beside tar, 1 KB files, synced"]["peers"]["our tar"] > 0
    assert cases["S3 to S3, until it ends"]["peers"]["larder copy"] > 0
    whose = ("memory, largest process", "memory, all processes")
    memory = [case for name, case in cases.items() if name.endswith(whose)]
    assert len(memory) == 6
    assert all(20e6 < case["ours"] < 400e6 for case in memory)
    assert "where ours goes" in said


def read(folder: Path) -> None:
    pytest.importorskip("simplejpeg")
    flags = ("--server", "rclone", "--peers-python", sys.executable)
    cases, _ = run("read", folder, "--runs", "1", "--files-scale", "0.02", *flags)
    check_targets(cases)
    streamed = cases["stream from S3: seconds"]["peers"]
    assert next(iter(streamed)) == "curl"
    assert "webdataset" in streamed
    assert {"boto3, one by one", "curl --parallel"} == set(
        cases["1,000 samples at random from S3: seconds"]["peers"]
    )
    assert len([name for name in cases if name.startswith("images to 224 pixels")]) == 5
    assert all(case["ours"] > 0 and case["peers"] for case in cases.values())


def scale(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    home = str(folder / "home")
    cases, said = run("scale", work, "--files-scale", "0.0002", PREFECT_HOME=home)
    assert cases["task runs"]["ours"] == 7
    assert "1,000 objects" in said


@pytest.mark.timeout(900)
@needs_tar
@pytest.mark.parametrize(
    "check", [images, cores, advice, shards, read, scale, *at_night(orchestration)]
)
def test_a_benchmark_runs_and_prints_its_document(check, tmp_path):
    check(tmp_path)


@needs_tar
@pytest.mark.parametrize("name", KINDS)
def test_packing_by_one_and_by_two_is_whole(name, tmp_path):
    setting = Setting(tmp_path)
    setting.prepare(Body("files", 12, 2_000))
    for pack in (turn, turn_of_two) if name in ("webdataset", "tfrecord") else (turn,):
        setting.clear()
        assert set(pack(setting, name)) == {"synced", "unsynced"}
        check_all(KINDS[name], setting, 12)
        with pytest.raises(AssertionError):
            check_all(KINDS[name], setting, 13)
