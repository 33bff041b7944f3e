"""Memory is bounded by the configuration, not by the objects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_lab import write

OBJECT_BYTES = 100_000_000
BOUND_BYTES = 40_000_000

RUN = r"""
import re, sys
from pathlib import Path
from larder.pipeline.inline import prepare
from larder.testing.runs import run_settings

def run(name):
    folder = Path(sys.argv[1], name)
    cluster = {"copy": {"memory_bytes": 16 * 1024**2, "concurrency": 4}, "runner": {"workers": 1}}
    settings = run_settings(folder / "source", folder / "local", folder / "out", cluster=cluster)
    assert prepare(settings)["objects"]["count"] == 2
    # Not getrusage, whose peak begins with that of the process that started this one.
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])

before = run("small")
print(run("large") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak there")
def test_a_large_object_passes_in_small_pieces(tmp_path: Path) -> None:
    write(tmp_path / "small" / "source", {"a.bin": b"1", "b.bin": b"2"})
    write(tmp_path / "large" / "source", {"a.bin": bytes(OBJECT_BYTES), "b.bin": b"2"})
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < BOUND_BYTES
