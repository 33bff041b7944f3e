"""The benchmark of shards runs, and says what it should where it should."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")
def test_a_small_run_prints_one_document(tmp_path: Path) -> None:
    flags = ["--files-scale", "0.002", "--runs", "1", "--directory", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "benchmarks.shards", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["benchmark"] == "shards"
    assert list(found["cases"]) == [
        "110 KB files, synced",
        "110 KB files, unsynced",
        "1 KB files, synced",
        "1 KB files, unsynced",
    ]
    for case in found["cases"].values():
        assert case["ours"] > 0
        assert list(case["peers"]) == ["GNU tar", "webdataset ShardWriter"]
        assert (case["target"], case["met"]) == (None, None)
    assert "where ours goes" in done.stderr
    assert list(tmp_path.iterdir()) == []
