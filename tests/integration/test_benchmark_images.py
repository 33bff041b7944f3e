"""The benchmark of images runs, and says what it should where it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_small_run_prints_one_document(tmp_path: Path) -> None:
    flags = ["--files-scale", "0.004", "--runs", "1", "--directory", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "benchmarks.images", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["benchmark"] == "images"
    kinds = [f"8 JPEGs of {size}" for size in ("500 x 375", "2,000 x 1,500")]
    names = [f"{step} {kind}" for kind in kinds for step in ("transform", "check", "prepare")]
    assert list(found["cases"]) == names
    for case in found["cases"].values():
        assert case["ours"] > 0
        assert case["peers"]
        assert (case["target"], case["met"]) == (None, None)
    assert list(tmp_path.iterdir()) == []
