"""The composition of a copy: its steps in order, for every runner.

::

    plan_copy -> nothing to do
              -> copy_objects, in batches -> end_copy
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from larder.copy.copy_end import end_copy
from larder.copy.copy_job import begin, make_copies
from larder.copy.copy_plan import CopyPlan, plan_copy
from larder.copy.copy_record import CopyDocument
from larder.copy.copy_report import (
    copied_document,
    copy_plan_document,
    current_document,
    failed_hint,
)
from larder.copy.copy_settings import CopySettings
from larder.copy.prices import check_cost
from larder.copy.route import SentAhead
from larder.disk import check_room, scratch
from larder.jobs.results import BatchReport, RefusedError, RunError, merge_reports
from larder.jobs.step_runner import Runner, Start
from larder.progress import Progress
from larder.store import local_path
from larder.units import format_count


def copy(
    settings: CopySettings,
    runner: Runner,
    *,
    plan_only: bool = False,
    start: Start | None = None,
) -> dict[str, Any]:
    """Copy missing and changed objects to a storage, and return the JSON document of the copy, or
    of its plan.

    With ``plan_only``, only private temporary files are written; ``start`` chooses where the plan
    is executed. RunError: some objects could not be copied, or some paths could not be listed. The
    others were copied; copies and failures are recorded. After any other failure, the next copy
    continues.
    """
    with scratch() as folder:
        plan = runner.run(checked_copy, settings, folder)
        if plan.current:
            return current_document(plan, runner.times)
        if plan_only:
            return copy_plan_document(plan)
        execute = partial(_execute, plan)
        return start(execute) if start else execute(runner)


def checked_copy(settings: CopySettings, folder: Path, *, progress: Progress) -> CopyPlan:
    """Plan a copy, and refuse a plan that must not be executed.

    Refused if the storage cannot hold some keys (``config.bad_key``) or bytes (``store.full``), if
    it costs too much (``config.cost_limit``), or if the chosen engine cannot make the copy. The
    plan needs the private ``folder`` until the copy is done.
    """
    plan = plan_copy(settings, folder, progress=progress)
    if plan.unfit.count:
        failures, count = plan.unfit.failures, plan.unfit.count
        message = f"{format_count(count, 'key')} that the storage cannot hold"
        hint = "rename or exclude them"
        report = BatchReport(failures=failures, failed=count)
        raise RefusedError("config.bad_key", f"{message}: {failures[0].message}", hint, report)
    check_cost(plan.cost, settings.limits.max_cost_usd, "copy")
    plan.route.check()
    root = plan.state.root
    if root.features.local_path and not plan.sums.replaced:  # replaced objects make room
        check_room(local_path(root, "x").parent, plan.copies.bytes)
    return plan


def _execute(plan: CopyPlan, runner: Runner) -> dict[str, Any]:
    """Execute a plan, whose temporary files must still exist.

    Failures are recorded with the copies, so that the next run can try only the failures; then the
    RunError is raised. ``run.interrupted``: the steps were asked to stop.
    """
    job, report, ahead = None, BatchReport(), SentAhead()
    if plan.copies.count:
        job = begin(plan.route, plan.settings.runner.batch_bytes, plan.due)
        report, ahead = make_copies(job, runner)
    runner.progress.start("publish")
    record: CopyDocument = runner.run(end_copy, plan.route, job, report, plan.earlier)
    runner.progress.finish("publish")
    failed = merge_reports((report, plan.unlisted))
    if failed.failed:
        stage = "mirror" if report.failed else "inventory"
        raise RunError(stage, failed, failed_hint(plan, report, record))
    return copied_document(plan, report, record, runner.times, ahead)
