"""The benchmarks run, print their documents, and check what was packed."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from required import at_night

from benchmarks import cache
from benchmarks.packing.bodies import Body, Setting
from benchmarks.packing.checks import check_all
from benchmarks.packing.ours import turn, turn_of_two
from tests.support.processes import run_python

pytestmark = pytest.mark.push

PYTHON = sys.executable
KINDS = {"webdataset": "tar", "tfrecord": "tfrecord", "recordio": "recordio", "parquet": "parquet"}

needs_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")


def run(name: str, folder: Path, *flags: str, **environment: str) -> dict[str, Any]:
    arguments = ("-m", f"benchmarks.{name}", "--json", "--directory", folder, *flags)
    done = run_python(*arguments, **environment)
    assert done.returncode == 0, done.stderr[-2_000:]
    document = json.loads(done.stdout)
    assert document["benchmark"] == name
    assert list(folder.iterdir()) == []
    cases: dict[str, Any] = document["cases"]
    assert all(set(case) == {"ours", "peers", "target", "met"} for case in cases.values())
    return cases


def check_targets(cases: dict[str, Any]) -> None:
    for name, case in cases.items():
        first = next(iter(case["peers"].values()), None)
        is_set = first and case["target"]
        met = case["ours"] / first <= case["target"] if is_set else None
        assert case["met"] is met, name


ASKED = ("tar-small", "formats-small", "s3", "memory-many", "memory-mirrored", "memory-parquet")
FLAGS: dict[str, tuple[str, ...]] = {
    "images": ("--rounds=1", "--files-scale=0.004"),
    "cores": ("--rounds=1", "--files-scale=0.002", "--cores=1"),
    "advice": ("--rounds=1", "--files-scale=0.05"),
    "orchestration": ("--rounds=1", "--files-scale=0.02", "--only=files"),
    "shards": ("--rounds=1", "--files-scale=0.0005", *(f"--only={name}" for name in ASKED)),
    "read": ("--rounds=1", "--files-scale=0.02", "--server=rclone", f"--peers-python={PYTHON}"),
    "scale": ("--files-scale=0.0002",),
    "catalog": ("--files-scale=0.002", "--rounds=1"),
}
"""Of each benchmark, how little it measures here."""


@pytest.mark.timeout(900)
@needs_tar
@pytest.mark.parametrize("name", at_night(*FLAGS, but=[*FLAGS.keys() - {"orchestration"}]))
def test_a_benchmark_runs_and_prints_its_document(name, tmp_path):
    (tmp_path / "work").mkdir()
    cases = run(name, tmp_path / "work", *FLAGS[name], PREFECT_HOME=str(tmp_path / "home"))
    assert cases
    assert all(case["ours"] >= 0 for case in cases.values())
    check_targets(
        {case: facts for case, facts in cases.items() if name == "read" or "tar, " in case}
    )


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


def test_the_benchmark_of_caches_says_that_tensorflow_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "installed", lambda packages: {})
    with pytest.raises(SystemExit) as caught:
        [*cache.measure(cache.PARSER.parse_args([]), tmp_path)]
    assert "TensorFlow is not installed" in str(caught.value.code)
