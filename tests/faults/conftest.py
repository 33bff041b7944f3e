"""Prints the table of docs/faults.md, if most of the matrix has run."""

from __future__ import annotations

from typing import Any

LEAST_CELLS = 1_000
LETTERS = {"ok": "o", "none": "-", "stopped": "s"}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    letters: dict[tuple[str, ...], str] = {}
    for status in ("passed", "failed", "xfailed"):
        for report in terminalreporter.stats.get(status, ()):
            found = dict(report.user_properties)
            if "cell" in found and report.when == "call":
                letter = LETTERS.get(found.get("outcome", ""), "r")
                letters[tuple(found["cell"])] = letter if status == "passed" else "F"
    if len(letters) < LEAST_CELLS:
        return
    from tests.faults.test_matrix import CELLS

    scenes, stores, faults = (list(dict.fromkeys(names)) for names in zip(*CELLS, strict=True))
    lines = [["fault", *scenes], ["---" for _ in ("", *scenes)]]
    for fault in faults:
        cells = ("".join(letters.get((each, s, fault), "") for s in stores) for each in scenes)
        lines.append([fault, *cells])
    for line in lines:
        terminalreporter.write_line(f"| {' | '.join(line)} |")
