"""The stdout of every benchmark: one document alone, or a line for each case."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import Figure, Target

FOLDER = Path(harness.__file__).parent
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"__init__", "harness"})
FIGURES = [
    Figure("met", 1.0, {"rclone": 2.0, "s5cmd": None}, Target(1.1, "rclone 1.75.2")),
    Figure("missed", 3.0, {"rclone": 2.0}, Target(1.1, "rclone 1.75.2")),
    Figure("not installed", 3.0, {"rclone": None}, Target(1.1, "rclone 1.75.2")),
    Figure("without a target", 4.0, {"rclone": 2.0, "s5cmd": 8.0}),
    Figure("alone", 5.0),
]


def make_noise():
    print("written by a library", flush=True)
    os.write(1, b"written by a library in C\n")
    subprocess.run(["echo", "written by a server"], check=True)


def stdout_of(name, flags, monkeypatch, capfd):
    """Run a benchmark as ``python -m`` does, with noise in place of its measurements."""
    real = harness.run
    monkeypatch.setattr(harness, "run", lambda parser, measure: real(parser, noisy))
    monkeypatch.setattr(sys, "argv", [name, *flags])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    make_noise()  # as libraries do when a process ends
    return capfd.readouterr().out


def noisy(flags, folder):
    make_noise()
    return FIGURES


@pytest.mark.parametrize("name", NAMES)
def test_stdout_is_one_document(name, monkeypatch, capfd):
    document = json.loads(stdout_of(name, ["--json"], monkeypatch, capfd))
    assert document["benchmark"] == name
    assert {case: facts["met"] for case, facts in document["cases"].items()} == {
        "met": True,
        "missed": False,
        "not installed": None,
        "without a target": None,
        "alone": None,
    }
    assert document["cases"]["missed"] == {
        "ours": 3.0,
        "peers": {"rclone": 2.0},
        "target": 1.1,
        "met": False,
    }


def test_a_line_has_a_case_with_ours_the_peers_and_the_ratio(monkeypatch, capfd):
    heads, *lines = stdout_of("scale", [], monkeypatch, capfd).splitlines()
    assert heads.split() == ["scale", "ours", "peers", "(ratio)", "target"]
    assert [" ".join(line.split()) for line in lines] == [
        "met 1.000 rclone 2.000 (0.50x), s5cmd - 1.10x of rclone 1.75.2: met",
        "missed 3.000 rclone 2.000 (1.50x) 1.10x of rclone 1.75.2: missed",
        "not installed 3.000 rclone - 1.10x of rclone 1.75.2: not measured",
        "without a target 4.000 rclone 2.000 (2.00x), s5cmd 8.000 (0.50x)",
        "alone 5.000",
    ]
