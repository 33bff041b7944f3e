"""Prepares every dataset whose source has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from larder.errors import Failure, LarderError
from larder.jobs.results import BatchReport, RunError
from larder.jobs.runner import Execute, Runner, Start
from larder.pipeline.prepare import prepare
from larder.pipeline.settings import Settings

_INTERRUPTED = "run.interrupted"


def refresh(
    datasets: Mapping[str, Callable[[], Settings]],
    runner: Runner,
    *,
    start: Start | None = None,
    run: Callable[[Settings, Runner], dict[str, Any]] = prepare,
) -> dict[str, Any]:
    """Prepare datasets one after the other: those whose source has not changed are only listed.

    Args:
        datasets: By name, what loads the settings of each; one that is wrong stops no other.
        runner: Where they run.
        start: Chooses where all of them run.
        run: Prepares one of them.

    Returns:
        ``{"datasets": [DOCUMENT, ...]}`` with the documents of the runs.

    Raises:
        RunError: Some datasets failed, which are named. The others were prepared.
    """

    def execute(runner: Runner) -> dict[str, Any]:
        documents: list[dict[str, Any]] = []
        failures: list[Failure] = []
        for name, load in datasets.items():
            try:
                documents.append(run(load(), runner))
            except LarderError as error:
                if error.code == _INTERRUPTED:
                    raise
                failures.append(Failure.of(name, error))
        if failures:
            hint = f"the others ({len(documents)}) are current; fix these, then run again"
            report = BatchReport(failed=len(failures), failures=tuple(failures))
            raise RunError("refresh", report, hint)
        return {"datasets": documents}

    chosen: Execute = execute
    return start(chosen) if start else chosen(runner)


def refresh_lines(document: Mapping[str, Any]) -> list[str]:
    """A line for each dataset."""
    runs: Sequence[Mapping[str, Any]] = document["datasets"]
    return [f"{run['dataset']} {run['status']}: version {run['version']}" for run in runs]
