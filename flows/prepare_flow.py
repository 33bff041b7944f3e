"""The flow: inventory, plan, mirror, shard, cache, publish, emit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from httpx import HTTPError  # Prefect's
from prefect import flow, get_client
from prefect.settings import get_current_settings
from prefect.task_runners import ThreadPoolTaskRunner

from flows._interrupt import hear_signals, interruptible
from larder.cli.display import Display
from larder.errors import FatalError
from larder.pipeline.begin import begin
from larder.pipeline.build import build
from larder.pipeline.inline import workers
from larder.pipeline.job import scratch
from larder.pipeline.plan import Plan
from larder.pipeline.report import built_document, reused_document
from larder.pipeline.settings import Settings, load_settings
from larder.progress import StageTimes
from tasks._progress import listening, stoppable, timed
from tasks.emit import emit
from tasks.plan import plan_run
from tasks.runner import TaskRunner
from tasks.survey import note_inputs, survey_source

__all__ = ["prepare", "run_prepare"]

_plans: list[Plan] = []
"""What the command line planned a moment ago, so that the source is listed once."""


@flow(
    name="prepare",
    flow_run_name="prepare {dataset} for {cluster}",
    persist_result=False,
    validate_parameters=True,
)
def prepare(
    dataset: str,
    cluster: str = "local",
    settings: list[str] | None = None,
    config_dir: str = "configs",
    output: str | None = None,
) -> dict[str, Any]:
    """Prepare a dataset: from its source to an experiment config.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        settings: key.path=value pairs that override the dataset file, or the cluster file with
            cluster. in front.
        config_dir: The directory of all configuration.
        output: Where configs go; out/CLUSTER/DATASET if not given.
    """
    hear_signals()
    started = time.monotonic()
    asked = load_settings(
        dataset,
        cluster,
        config_dir=Path(config_dir),
        settings=settings or (),
        output=Path(output) if output else None,
    )
    with timed() as times:
        return _prepare(asked, times, started)


def _prepare(asked: Settings, times: StageTimes, started: float) -> dict[str, Any]:
    with scratch() as folder:
        if _plans:
            plan = _plans.pop()
        else:
            found = survey_source(asked, folder)
            if found.published is not None:
                note_inputs(asked, found)
                configs = emit(asked, found.published)
                seconds = time.monotonic() - started
                return reused_document(asked, found, configs, seconds, times.stages())
            plan = plan_run(asked, found, folder)
        job = begin(plan)
    built = build(job, TaskRunner(workers(asked)))
    configs = emit(asked, built.version)
    seconds = time.monotonic() - started
    return built_document(asked, plan, built, configs, seconds, times.stages())


def run_prepare(
    settings: Settings,
    parameters: dict[str, Any],
    plan: Plan | None,
    display: Display,
) -> dict[str, Any]:
    """Run the flow in this process.

    Args:
        settings: What ``parameters`` lead to.
        parameters: Of the flow.
        plan: What was planned for this very run, if it was.
        display: Told of every stage.

    Returns:
        The JSON document of the run.

    Raises:
        FatalError: ``run.server``: Prefect's server cannot be reached, or refuses.
        KeyboardInterrupt: The user interrupted the run.
    """
    _check_server()
    runner: Any = ThreadPoolTaskRunner(max_workers=workers(settings))
    _plans[:] = [plan] if plan else []  # also what a run before this one left
    with (
        listening(display),
        stoppable() as stop,
        interruptible(stop, display.say),
    ):
        try:
            document: dict[str, Any] = prepare.with_options(task_runner=runner)(**parameters)
        except HTTPError as error:
            raise _server_error(error) from error
    return document


def _check_server() -> None:
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error:
        raise _server_error(error) from error


def _server_error(error: Exception) -> FatalError:
    url = str(get_current_settings().api.url)
    hint = "see PREFECT_API_URL; the same command carries on"
    return FatalError("run.server", f"Prefect's server fails: {error}", where=url, hint=hint)
