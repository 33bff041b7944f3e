"""The flows: inventory, plan, mirror, shard, cache, publish, emit."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Any

from prefect import flow

from flows.runs.flow_run import call_flow, flow_run
from larder.cli.display import Display
from larder.pipeline import prepare as composition
from larder.pipeline.job import Job
from larder.pipeline.plan import Plan
from larder.pipeline.settings import Settings, load_settings
from larder.progress import StageTimes
from tasks.runner import task_runner

_planned: ContextVar[tuple[Plan, Job] | None] = ContextVar("planned", default=None)
"""What the command line has just planned and begun, so that the source is listed only once."""


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
) -> Any:
    """Prepare a dataset: from its source to an experiment config.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        settings: key.path=value pairs that override the dataset file, or the cluster file with
            the prefix cluster.
        config_dir: The directory with all configuration files.
        output: Where configs are written; by default out/CLUSTER/DATASET.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return _run(dataset, cluster, settings, config_dir, output, compact=False)


@flow(
    name="compact",
    flow_run_name="compact {dataset} for {cluster}",
    persist_result=False,
    validate_parameters=True,
)
def compact(
    dataset: str,
    cluster: str = "local",
    settings: list[str] | None = None,
    config_dir: str = "configs",
    output: str | None = None,
) -> Any:
    """Put all samples of a dataset into one segment: prepare it, and leave no omitted rows.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        settings: key.path=value pairs that override the dataset file, or the cluster file with
            the prefix cluster.
        config_dir: The directory with all configuration files.
        output: Where configs are written; by default out/CLUSTER/DATASET.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return _run(dataset, cluster, settings, config_dir, output, compact=True)


def _run(
    dataset: str,
    cluster: str,
    settings: list[str] | None,
    config_dir: str,
    output: str | None,
    *,
    compact: bool,
) -> Any:
    def work(times: StageTimes) -> dict[str, Any]:
        asked = load_settings(
            dataset,
            cluster,
            config_dir=Path(config_dir),
            settings=settings or (),
            output=Path(output) if output else None,
            compact=compact,
        )
        return _prepare(asked, times)

    return flow_run(work)


def _prepare(asked: Settings, times: StageTimes) -> dict[str, Any]:
    """Run the steps as tasks, with as many concurrent batches as the cluster file says."""
    with task_runner(asked.workers, times) as runner:
        plan, job = _planned.get() or (None, None)
        if plan and job and plan.source_state.settings == asked:
            return composition.execute(plan, job, runner)
        return composition.prepare(asked, runner)


_FLOWS = {False: prepare, True: compact}


def run_prepare(
    parameters: dict[str, Any],
    planned: tuple[Plan, Job] | None,
    display: Display,
    *,
    named: bool,
    compact: bool = False,
) -> dict[str, Any]:
    """Run the flow in this process.

    Args:
        parameters: The parameters of the flow.
        planned: What was already planned and begun for this run, if anything.
        display: Reports progress of every stage.
        named: Whether the user configured the server, and so wants to know the run's address.
        compact: Whether to run the flow that puts all samples into one segment.

    Returns:
        The JSON document of the run.

    Raises:
        FatalError: ``run.server``: Prefect's server cannot be reached, or refuses the request.
        KeyboardInterrupt: The user interrupted the run, or cancelled it in Prefect.
    """
    token = _planned.set(planned)
    try:
        return call_flow(_FLOWS[compact], parameters, display, named=named)
    finally:
        _planned.reset(token)
