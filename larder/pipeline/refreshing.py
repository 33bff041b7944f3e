"""Prepares every dataset whose source has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from larder.errors import Failure, LarderError
from larder.jobs.results import BatchReport, RunError
from larder.jobs.step_runner import Execute, Runner, Start
from larder.pipeline.preparing import prepare
from larder.pipeline.run_report import run_lines, status_line
from larder.pipeline.settings import Settings
from larder.progress import stages_since

_INTERRUPTED = "run.interrupted"


def refresh(
    datasets: Mapping[str, Callable[[], Settings]],
    runner: Runner,
    *,
    start: Start | None = None,
    run: Callable[[Settings, Runner], dict[str, Any]] = prepare,
) -> dict[str, Any]:
    """Prepare datasets one after the other; an unchanged source is only listed.

    Args:
        datasets: By name, a function that loads the dataset's settings; an error stops no other
            dataset.
        runner: The runner of all datasets.
        start: Chooses where all of them run.
        run: Prepares one dataset.

    Returns:
        ``{"datasets": [DOCUMENT, ...]}`` with the documents of the runs.

    Raises:
        RunError: Names the datasets that failed. The others were prepared: ``document`` is what
            would be returned for these.
    """

    def execute(runner: Runner) -> dict[str, Any]:
        documents: list[dict[str, Any]] = []
        failures: list[Failure] = []
        for number, (name, load) in enumerate(datasets.items(), 1):
            runner.progress.restart(f"dataset {number} of {len(datasets)}: {name}")
            before, began_seconds = runner.times.stages(), runner.times.seconds()
            try:
                document = run(load(), runner)
                documents.append(_of_one(document, before, began_seconds))
            except LarderError as error:
                if error.code == _INTERRUPTED:
                    raise
                failures.append(Failure.of(name, error))
        if failures:
            hint = "fix these, then run again; the others are current"
            report = BatchReport(failed=len(failures), failures=tuple(failures))
            failed = RunError("refresh", report, hint)
            failed.document = {"datasets": documents}
            raise failed
        return {"datasets": documents}

    chosen: Execute = execute
    return start(chosen) if start else chosen(runner)


def _of_one(
    document: dict[str, Any], before: Mapping[str, Mapping[str, Any]], began_seconds: float
) -> dict[str, Any]:
    """Make the document of a dataset, without the time and stages of earlier datasets."""
    stages = stages_since(before, document["stages"])
    seconds = round(document["seconds"] - began_seconds, 3)
    return {**document, "seconds": seconds, "stages": stages}


def refresh_lines(document: Mapping[str, Any]) -> list[str]:
    """List a line for each unchanged dataset, and all lines of a run for the others."""
    runs: Sequence[Mapping[str, Any]] = document["datasets"]
    return [
        line
        for run in runs
        for line in ([status_line(run)] if run["status"] == "reused" else run_lines(run))
    ]
