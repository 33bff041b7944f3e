"""The composition: the steps of a run, in order, for every runner.

::

    inspect_source -> reuse
                   -> make_plan -> begin -> build -> emit_configs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from larder.pipeline.begin import begin
from larder.pipeline.build import Runner, build
from larder.pipeline.emit import emit_configs, pending_configs
from larder.pipeline.job import Job, scratch
from larder.pipeline.plan import Plan
from larder.pipeline.planned import plan_document
from larder.pipeline.refusals import checked_plan
from larder.pipeline.report import built_document, reused_document
from larder.pipeline.settings import Settings
from larder.pipeline.source import SourceState, inspect_source
from larder.versions.documents import VersionDocument

__all__ = ["Execute", "execute", "prepare"]

Execute = Callable[[Plan, Job], dict[str, Any]]
"""Executes a plan for which a job was begun, and returns the JSON document of the run."""


def prepare(
    settings: Settings,
    runner: Runner,
    *,
    plan_only: bool = False,
    execute_with: Execute | None = None,
) -> dict[str, Any]:
    """Prepare a dataset: reuse the version that these inputs led to before, or build one.

    Args:
        settings: The run.
        runner: Runs the steps.
        plan_only: Only return the plan; writes only private temporary files.
        execute_with: Replaces `execute` with ``runner``.

    Returns:
        The JSON document of the run, or of its plan.

    Raises:
        LarderError: Any failure; nothing is published in part.
    """
    with scratch() as folder:
        found = runner.run(inspect_source, settings, folder)
        if found.published is not None:
            return _reuse(found, found.published, runner, plan_only=plan_only)
        plan = runner.run(checked_plan, found, folder)
        if plan_only:
            return plan_document(plan)
        job = begin(plan)
    return execute_with(plan, job) if execute_with else execute(plan, job, runner)


def execute(plan: Plan, job: Job, runner: Runner) -> dict[str, Any]:
    """Execute a plan.

    Args:
        plan: The plan.
        job: The job that was begun for it.
        runner: Runs the steps.

    Raises:
        FatalError: ``run.interrupted``: the steps were asked to stop.
        LarderError: Any other failure; nothing is published in part.
    """
    built = build(job, runner)
    settings = plan.source_state.settings
    configs = runner.run(emit_configs, settings, built.version)
    return built_document(plan, built, configs, runner.times)


def _reuse(
    found: SourceState, version: VersionDocument, runner: Runner, *, plan_only: bool
) -> dict[str, Any]:
    """Reuse the version that these inputs led to before; writes only what differs."""
    settings = found.settings
    if plan_only:
        configs = pending_configs(settings, version)
    else:
        configs = runner.run(emit_configs, settings, version)
    return reused_document(found, version, configs, runner.times)
