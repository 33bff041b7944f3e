"""Publishes a lost version.json again, if the source still leads to the same version."""

from __future__ import annotations

from dataclasses import replace

from larder.errors import LarderError, RetryableError, StoreError
from larder.pipeline.begin import begin
from larder.pipeline.build import build
from larder.pipeline.job import listed, scratch
from larder.pipeline.plan import Plan
from larder.pipeline.refusals import checked_plan
from larder.pipeline.repairing_files import Repair
from larder.pipeline.runner import Runner
from larder.pipeline.settings import Settings
from larder.pipeline.source import inspect_source
from larder.pipeline.verifying_job import VerifyJob, open_verified
from larder.versions import layout

__all__ = ["republish"]

_HINT = "restore it, or prepare the dataset again, which publishes what the source has now"


def republish(
    job: VerifyJob, settings: Settings, runner: Runner, version: str, *, trial: bool
) -> Repair:
    """Do what a run of `prepare` would do, if that is to publish this version.

    Args:
        job: The verification.
        settings: Of the run.
        runner: Runs the steps.
        version: ID of the version whose document is missing.
        trial: Whether nothing is written.
    """
    path = layout.version_key(version)
    try:
        with scratch() as folder:
            found = runner.run(
                inspect_source, replace(settings, compact=False), folder, None, trial
            )
            if found.published is not None:
                return Repair(path, False, f"the source leads to another version now; {_HINT}")
            plan = runner.run(checked_plan, found, folder)
            why = _other(job, plan, version)
            if why:
                return Repair(path, False, f"{why}; {_HINT}")
            if not trial:
                build(begin(plan), runner)
    except (StoreError, RetryableError):
        raise
    except LarderError as error:
        if error.code == "run.interrupted":
            raise
        return Repair(path, False, f"it cannot be published again: {error}; {_HINT}")
    return Repair(path, True, "published again: the source still leads to it")


def _other(job: VerifyJob, plan: Plan, version: str) -> str:
    """Why the plan is not to write the lost document; empty if it is."""
    if plan.version != version:
        return f"the source leads to version {plan.version} now"
    inventory = layout.manifest_key(version, "objects", plan.source_state.inventory.file.sha256)
    there = {info.key for info in listed(open_verified(job), layout.version_prefix(version))}
    if inventory not in there:
        return "the source has the same samples, but objects with other times or etags"
    if plan.new is not None and not plan.new.complete:
        return f"its segment {plan.new.id} is damaged, too, and has to be repaired first"
    return ""
