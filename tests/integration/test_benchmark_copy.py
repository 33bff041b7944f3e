"""The benchmark of copies runs, and prints its document."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_small_run_prints_one_document(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.copy", "--json", "--runs", "1"]
    command += ["--peers", str(Path(sys.executable).parent)]
    command += ["--files-scale", "0.01", "--directory", str(tmp_path), "--latency-seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["benchmark"] == "copy"
    cases = document["cases"]
    assert len(cases) > 26
    for name, case in cases.items():
        assert case["ours"] > 0, name
        assert set(case) == {"ours", "peers", "target", "met"}
    walls = [case["peers"] for name, case in cases.items() if name.endswith("wall seconds")]
    assert any(peers.get("rclone") for peers in walls), "rclone is installed with the tests"
