"""The benchmark of growth runs, and its figures agree with each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
REAL, INVENTED, TINY = "100 real files", "2,000 invented samples", "10,000 tiny samples"
VARIANTS = {
    REAL: ("in key order", "mirrored, shuffled, cached"),
    INVENTED: ("in key order", "shuffled, cached"),
}
FIRST, ADDED, CHANGED = "first build", "1 percent added", "0.01 percent changed"
REPACK, OMIT = "0.1 percent removed, repack", "0.1 percent removed, omit"
STEPS = ("nothing changed", ADDED, REPACK, OMIT, CHANGED)
WHAT = (
    "seconds",
    "bytes written",
    "bytes of manifests an object",
    "bytes read",
    "peak bytes of memory",
)
PEERS = ["webdataset", "MosaicML Streaming", "DVC", "Lance"]
DAILY = ("seconds", "bytes written", "segments at the end", "seconds of the last 10")

Cases = Mapping[str, Mapping[str, Any]]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_quick_run_prints_one_document(tmp_path: Path) -> None:
    flags = ["--quick", "--large", "--directory", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "benchmarks.growth", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["benchmark"] == "growth"
    cases: Cases = found["cases"]
    assert set(cases) == expected_cases()
    for name, case in cases.items():
        assert case["ours"] >= 0, name
        first = next(iter(case["peers"].values()), None)
        if case["target"] is None:
            assert case["met"] is None, name
        else:
            assert case["met"] is (case["ours"] <= case["target"] * first), name
    for body in (REAL, INVENTED):
        for variant in VARIANTS[body]:
            agree(cases, f"{body}, {variant}")
    with_peers(cases)
    assert done.stderr.count("### ") == 6
    assert list(tmp_path.iterdir()) == []


def expected_cases() -> set[str]:
    return {
        *(
            f"{body}, {variant}: {step}: {what}"
            for body in (REAL, INVENTED)
            for variant in VARIANTS[body]
            for step in (FIRST, *STEPS)
            for what in WHAT
        ),
        *(f"{REAL}, a file a day for 3 days: {what}" for what in (*DAILY, WHAT[-1])),
        *(f"{TINY}: {step}: {what}" for step in (FIRST, ADDED) for what in (WHAT[0], WHAT[-1])),
    }


def agree(cases: Cases, prefix: str) -> None:
    """What was written is what the arithmetic says, or more; what was not written costs nothing."""

    def ours(step: str, what: str) -> float:
        return float(cases[f"{prefix}: {step}: {what}"]["ours"])

    first = ours(FIRST, "bytes written")
    assert ours("nothing changed", "bytes written") == 0
    for step in (ADDED, REPACK, CHANGED):
        case = cases[f"{prefix}: {step}: bytes written"]
        assert case["peers"][FIRST] == first
        assert 0 < case["peers"]["arithmetic"] < case["ours"]
    assert cases[f"{prefix}: {OMIT}: bytes written"]["peers"]["arithmetic"] == 0
    assert 0 < ours(OMIT, "bytes written") < ours(REPACK, "bytes written")
    assert ours(ADDED, "bytes written") < first
    assert ours(ADDED, "bytes read") < ours(FIRST, "bytes read")


def with_peers(cases: Cases) -> None:
    """Those that are not installed, or cannot do it, are null; webdataset is always there."""
    for body in (REAL, INVENTED):
        for step in (FIRST, ADDED, REPACK, CHANGED):
            case = cases[f"{body}, in key order: {step}: bytes written"]
            assert [name for name in case["peers"] if name in PEERS] == PEERS
            assert case["peers"]["webdataset"] > 0
        assert case["peers"]["DVC"] is None or body == REAL
    alone = cases[f"{REAL}, {VARIANTS[REAL][-1]}: {ADDED}: seconds"]
    assert list(alone["peers"]) == [FIRST]
