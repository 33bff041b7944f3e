"""Prints the matrix of faults as the table of docs/reference/faults.md, if much of it has run."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

LEAST_CELLS = 1_000
STORES = ("directory", "s3", "s3 https", "s3 without MD5", "s3 without conditions", "gcs")
LETTERS = {"ok": "o", "none": "-", "stopped": "s"}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    scenes: dict[str, None] = {}
    cells: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for status in ("passed", "failed", "xfailed"):
        for report in terminalreporter.stats.get(status, ()):
            found = dict(report.user_properties)
            if "cell" in found and report.when == "call":
                scene, store, fault = found["cell"]
                scenes[scene] = None
                letter = LETTERS.get(found.get("outcome", ""), "r")
                cells[fault, scene][store] = letter if status == "passed" else "F"
    if sum(map(len, cells.values())) < LEAST_CELLS:
        return
    print_line = terminalreporter.write_line
    print_line(f"| fault | {' | '.join(scenes)} |")
    print_line(f"|---|{'---|' * len(scenes)}")
    for fault in dict.fromkeys(fault for fault, _ in cells):
        rows = ("".join(cells[fault, scene].get(each, "") for each in STORES) for scene in scenes)
        print_line(f"| {fault} | {' | '.join(rows)} |")
