"""The benchmarks of copies, images and plans run, and print their documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def run(name: str, folder: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """The cases of a small run, and what it says beside them."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", "--runs", "1"]
    command += ["--directory", str(folder), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["benchmark"] == name
    assert all(case["ours"] > 0 for case in document["cases"].values())
    cases: dict[str, Any] = document["cases"]
    return cases, done.stderr


def test_images(tmp_path: Path) -> None:
    cases, _ = run("images", tmp_path, "--files-scale", "0.004")
    kinds = [f"8 JPEGs of {size}" for size in ("500 x 375", "2,000 x 1,500")]
    assert list(cases) == [
        f"{step} {kind}" for kind in kinds for step in ("transform", "check", "prepare")
    ]
    assert all(case["peers"] for case in cases.values())
    assert list(tmp_path.iterdir()) == []


def test_planning(tmp_path: Path) -> None:
    cases, said = run("planning", tmp_path, "--files-scale", "0.004")
    assert {name: list(case["peers"]) for name, case in cases.items()} == {
        "sort 20,000 rows": ["pyarrow in memory"],
        "match 20,000 rows": ["pyarrow in memory"],
        "plan 4,000 objects, in key order": [],
        "plan 4,000 objects, shuffled": [],
        "plan 4,000 objects, shuffled, mirrored": [],
    }
    assert said.count("peak MB") == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(600)
def test_copy(tmp_path: Path) -> None:
    peers = ["--peers", str(Path(sys.executable).parent)]
    flags = [*peers, "--files-scale", "0.01", "--latency-seconds", "0.01"]
    cases, _ = run("copy", tmp_path, *flags)
    assert len(cases) > 26
    assert all(set(case) == {"ours", "peers", "target", "met"} for case in cases.values())
    walls = [case["peers"] for name, case in cases.items() if name.endswith("wall seconds")]
    assert any(peers.get("rclone") for peers in walls), "rclone is installed with the tests"
