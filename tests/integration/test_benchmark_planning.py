"""The benchmark of manifests and plans runs, and says what it should where it should."""

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
    command = [sys.executable, "-m", "benchmarks.planning", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["benchmark"] == "planning"
    assert {name: list(case["peers"]) for name, case in found["cases"].items()} == {
        "sort 20,000 rows": ["pyarrow in memory"],
        "match 20,000 rows": ["pyarrow in memory"],
        "plan 4,000 objects, in key order": [],
        "plan 4,000 objects, shuffled": [],
        "plan 4,000 objects, shuffled, mirrored": [],
    }
    for case in found["cases"].values():
        assert case["ours"] > 0
        assert (case["target"], case["met"]) == (None, None)
    assert done.stderr.count("peak MB") == 5
    assert list(tmp_path.iterdir()) == []
