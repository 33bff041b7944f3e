"""The steps as tasks of Prefect: their names, retries, and ends.

The store repeats calls. In addition, a task is repeated at most twice, and only if that can help:
if a store kept failing, or after an unexpected error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled
from prefect.tasks import Task, exponential_backoff

from larder.card.draw import draw_card
from larder.catalog import cleaning
from larder.copy.copy_end import end_copy
from larder.copy.copy_job import copy_objects, send_ahead
from larder.copy.copying import checked_copy
from larder.copy.pruning import plan_prune, prune_objects
from larder.errors import LarderError, RetryableError
from larder.jobs.results import BatchReport, RunError
from larder.pipeline import configs, publish_step
from larder.pipeline.planned_build import record_run
from larder.pipeline.planning import checks as plan_checks
from larder.pipeline.planning import source_state
from larder.segments import cache_step, index_step, shard
from larder.store.throttle import share_bandwidth
from larder.verify import reading, repair, survey
from tasks.artifacts import card_note, config_note, plan_table, recorded
from tasks.run_progress import RemoteResult, current_crew, current_progress, reported_later

STOPPED = "run.interrupted"
"""The code of the error that a step raises when it is asked to stop."""

SUPERSEDED = ("version.superseded", "version.cleaned")
"""Codes of errors after which the run starts again, because data of its plan is gone."""


def _rows(beginning: str) -> Callable[[dict[str, Any]], str]:
    """Make a function that names batches, ``copy objects 2,001 to 2,411``, counted from 1."""

    def name(parameters: dict[str, Any]) -> str:
        batch = parameters["batch"]
        first, last = batch.first_row + 1, batch.first_row + batch.rows
        if first == last:
            return f"{beginning} {first:,}"
        return f"{beginning}s {first:,} to {last:,}"

    return name


@dataclass(frozen=True, slots=True)
class Step:
    """A function that is run as a task.

    Attributes:
        run_name: Name of its task runs: a template with the function's parameters, or a function.
        retried: Whether the step may be repeated, because it continues from receipts.
        show: Makes an artifact of its result, on the pages of the task and its flow run.
    """

    function: Callable[..., Any]
    name: str
    run_name: str | Callable[[dict[str, Any]], str]
    retried: bool = True
    show: Callable[[Any], None] | None = None


STEPS = (
    Step(source_state.inspect_source, "inventory", "inventory of {settings.dataset.name}"),
    Step(plan_checks.checked_plan, "plan", "plan {state.dataset.name}", show=plan_table),
    Step(shard.shard_batch, "shard", "shards from {batch.name}"),
    Step(index_step.index_shards, "index", "index of the shards"),
    Step(cache_step.cache_split, "cache", "cache of {batch.split}"),
    Step(publish_step.publish, "publish", "publish version {job.version}"),
    Step(publish_step.publish_existing, "publish again", "publish version {job.version}"),
    Step(configs.emit_configs, "emit", "config for {settings.cluster.name}", show=config_note),
    Step(record_run, "record run", "record of version {record.version}", show=recorded),
    Step(draw_card, "card", "data card of {version}", show=card_note),
    Step(checked_copy, "plan copy", "plan of the copy"),
    Step(send_ahead, "send ahead", "skyplane", retried=False),
    Step(copy_objects, "copy", _rows("copy object")),
    Step(end_copy, "record", "record of the copy"),
    Step(plan_prune, "plan prune", "plan of the prune"),
    Step(prune_objects, "prune", "prune what is gone"),
    Step(cleaning.plan_clean, "plan clean", "plan of the clean"),
    Step(cleaning.remove_leftovers, "remove leftovers", "leftovers of killed runs"),
    Step(cleaning.clean_units, "clean", "clean {plan.settings.place.dataset}", retried=False),
    Step(survey.inspect_version, "inspect version", "documents of {job.version}"),
    Step(reading.verify_batch, "verify", "verify {batch.name}"),
    Step(repair.repair_small, "repair documents", "repair of documents and manifests"),
    Step(repair.repair_large, "repair", "repair of {batch.name}"),
    Step(repair.name_version, "name version", "latest names {job.version}"),
)


def task_of(step: Step, *, elsewhere: bool = False) -> Task[Any, Any]:
    """Make the task of a step, with the parameters of its function, except the progress.

    The result of a task that runs ``elsewhere`` is a `tasks.run_progress.RemoteResult`; ``shares``
    is the number of such tasks at a time. A batch with failed objects is a failed task run. A step
    that was asked to stop is Cancelled in Prefect, or Superseded; the result is still the error.
    """
    signature = inspect.signature(step.function)
    parameters = [each for each in signature.parameters.values() if each.name != "progress"]
    if elsewhere:
        parameters.append(inspect.Parameter("shares", inspect.Parameter.KEYWORD_ONLY, default=1))

    @wraps(step.function)
    def run(*arguments: Any, **named: Any) -> Any:
        share_bandwidth(named.pop("shares", 1))
        try:
            with reported_later() if elsewhere else nullcontext() as times:
                result = current_crew().run(
                    step.function, *arguments, **named, progress=current_progress()
                )
            if isinstance(result, BatchReport):
                RunError.unless_clean(step.name, result)
        except LarderError as error:
            if error.code not in (STOPPED, *SUPERSEDED):
                raise
            name = "Superseded" if error.code in SUPERSEDED else "Cancelled"
            return Cancelled(name=name, message=error.message, data=error)
        if step.show:
            step.show(result)
        return RemoteResult(result, times.stages()) if times else result

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return Task(
        run,
        name=step.name,
        task_run_name=step.run_name,  # type: ignore[arg-type] # its protocol has a class method
        # Results stay in the process: they are small, and manifests are passed by reference.
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
        retries=2 if step.retried else 0,
        retry_delay_seconds=exponential_backoff(backoff_factor=5),
        retry_jitter_factor=0.5,
        retry_condition_fn=_worth_repeating,
    )


def _worth_repeating(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    foreseen = isinstance(error, LarderError) and not isinstance(error, RetryableError)
    return isinstance(error, Exception) and not foreseen


TASKS = {step.function: task_of(step) for step in STEPS}
ELSEWHERE = {step.function: task_of(step, elsewhere=True) for step in STEPS}
