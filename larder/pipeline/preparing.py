"""The composition: the steps of a run, in order, for every runner.

::

    inspect_source -> reuse
                   -> checked_plan -> planned_build: begin_build -> build -> emit_configs

If another run has moved the tag in the meantime, the run starts again from the listing. `refresh`
does this for many datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from larder.disk import scratch
from larder.errors import Failure, LarderError, SupersededError, printable
from larder.jobs.results import BatchReport, RunError
from larder.jobs.step_runner import InlineRunner, Runner, Start, only_here
from larder.manifest.query import tables_in
from larder.pipeline.configs import emit_configs, pending_configs, submit_command
from larder.pipeline.planning.source_state import inspect_source
from larder.pipeline.run_report import reused_document, run_lines, status_line
from larder.pipeline.settings import Settings
from larder.progress import StageTimes, stages_since
from larder.store.interrupt import INTERRUPTED
from larder.versions.runs import now

if TYPE_CHECKING:
    from larder.pipeline.planned_build import PlannedBuild

RESTARTS = 3
"""Maximum restarts of a superseded run, so that runs that keep moving the tag end."""


def prepare(
    settings: Settings,
    runner: Runner | None = None,
    *,
    plan_only: bool = False,
    start: Start | None = None,
) -> dict[str, Any]:
    """Prepare a dataset: reuse the version that these inputs led to before, or build one.

    With ``plan_only``, only private temporary files are written, and on this machine the contents
    of a source's archives and tables. ``start`` chooses where the plan is executed. Returns the
    JSON document of the run, or of its plan.

    SupersededError: other runs have moved the tag during each of the attempts. After any other
    error, nothing is published in part.
    """
    if runner is None:
        only_here(settings.cluster.runner)
        runner = InlineRunner(settings.batches_at_once, StageTimes())
    claim = nullcontext() if plan_only else runner.claim(settings.dataset.name)
    with claim, ExitStack() as leases:
        planned = _planned(settings, runner, leases, plan_only=plan_only)
        if isinstance(planned, dict):
            return planned
        execute = partial(_execute, settings, planned)
        return start(execute) if start else execute(runner)


def _planned(
    settings: Settings,
    runner: Runner,
    leases: ExitStack,
    compaction: str | None = None,
    *,
    plan_only: bool = False,
) -> dict[str, Any] | PlannedBuild:
    """Plan a run in a temporary folder, and begin its job, which does not need the folder.

    Returns the JSON document if there is nothing to do, or with ``plan_only``. A lease that the run
    takes is given back once ``leases`` is closed.
    """
    began, stages_before = now(), runner.times.stages()
    with scratch() as folder, tables_in(folder, settings.cluster.memory.tables_bytes):
        state = runner.run(inspect_source, settings, folder, compaction, plan_only)
        if state.published is not None:
            if plan_only:
                configs = pending_configs(settings, state.published)
                return reused_document(state, state.published, configs, runner.times)
            configs = runner.run(emit_configs, settings, state.published)
            document = reused_document(state, state.published, configs, runner.times)
            return document | {"command": submit_command(settings, configs)}
        # Only now: these import what plans and builds, which a run with nothing to do never needs.
        from larder.pipeline.planned_build import begin_build
        from larder.pipeline.planning.checks import checked_plan
        from larder.pipeline.planning.plan_report import plan_document

        plan = runner.run(checked_plan, state, folder)
        if plan_only:
            return plan_document(plan)
        return begin_build(settings, plan, runner, leases, began, stages_before)


def _execute(settings: Settings, planned: PlannedBuild, runner: Runner) -> dict[str, Any]:
    """Execute a planned build.

    If the run is superseded, it lists the source again, and executes the new plan. A compaction is
    not repeated: later changes are added to its own result.
    """
    for restart in range(1, RESTARTS + 1):
        try:
            return planned.execute(settings, runner)
        except SupersededError as error:
            why = printable(error.message)
            runner.progress.restart(f"{why}; starting again ({restart} of {RESTARTS})")
        compaction = planned.job.version if settings.compact else None
        again = _planned(settings, runner, planned.leases, compaction)
        if isinstance(again, dict):
            return again
        planned = again
    return planned.execute(settings, runner)


def refresh(
    datasets: Mapping[str, Callable[[], Settings]],
    runner: Runner,
    *,
    start: Start | None = None,
    run: Callable[[Settings, Runner], dict[str, Any]] = prepare,
) -> dict[str, Any]:
    """Prepare datasets one after the other; an unchanged source is only listed.

    ``datasets`` has a function by name that loads the settings. Returns ``{"datasets": [DOCUMENT,
    ...]}``. An error stops no other dataset. RunError names the failed datasets, and its
    ``document`` has the documents of the others.
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
                if error.code == INTERRUPTED:
                    raise
                failures.append(Failure.of(name, error))
        if failures:
            hint = "fix these, then run again" + ("; the others are current" if documents else "")
            report = BatchReport(failed=len(failures), failures=tuple(failures))
            failed = RunError("refresh", report, hint)
            failed.document = {"datasets": documents}
            raise failed
        return {"datasets": documents}

    return start(execute) if start else execute(runner)


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
