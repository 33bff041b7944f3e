"""What the page of a run shows of its result."""

import logging
from typing import Any

import pytest

from larder.pipeline.run_report import run_lines

WARNING = {"code": "few_shards", "message": "train has 1 shard: set shards.count_min: 2"}
DOCUMENT: dict[str, Any] = {
    "dataset": "files",
    "status": "built",
    "version": "0" * 32,
    "seconds": 1.0,
    "objects": {"count": 3, "bytes": 15},
    "copied": {"count": 3, "bytes": 15},
    "shards": {"count": 1, "bytes": 4096, "samples": 3},
    "cache": None,
    "growth": None,
    "skipped": 2,
    "failures": [],
    "location": "file:///data/larder/files/versions/0",
    "configs": ["out/experiment.yaml"],
}


@pytest.mark.parametrize("warnings", [[], [WARNING], None])
def test_warnings_of_the_plan_are_warnings_of_the_run(
    warnings: list[dict[str, str]] | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from flows.runs import page  # imports Prefect, which takes seconds

    logger = logging.getLogger("a_run")
    logger.setLevel(logging.INFO)
    monkeypatch.setattr(page, "get_run_logger", lambda: logger)
    document = DOCUMENT if warnings is None else {**DOCUMENT, "warnings": warnings}
    page.RunLog().outcome(document, run_lines)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    expected = [f"warning[few_shards]: {WARNING['message']}"] if warnings else []
    assert told == [*expected, "2 skipped, as the dataset file says"]
    words = " ".join(" ".join(caplog.messages).split())
    assert words.count(WARNING["message"]) == len(expected), "it is logged once"
    assert "  config   out/experiment.yaml" in caplog.messages
