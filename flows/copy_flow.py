"""The flows that copy and prune, without a dataset."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from prefect import flow
from pydantic import StrictBool, StrictInt

from flows.runs.flow_run import call_flow, flow_run
from larder.cli.display import Display
from larder.pipeline import copying, pruning
from larder.pipeline.copying_plan import CopyPlan
from larder.pipeline.copying_report import copy_lines
from larder.pipeline.copying_settings import load_copy_settings
from larder.pipeline.pruning import PrunePlan, PruneSettings
from larder.progress import StageTimes
from tasks.runner import task_runner

_planned: ContextVar[CopyPlan | PrunePlan | None] = ContextVar("planned copy", default=None)
"""What the command line has just planned, so that both places are listed only once."""


@flow(
    name="copy",
    flow_run_name="copy {source} to {storage}",
    persist_result=False,
    validate_parameters=True,
)
def copy(
    source: str,
    storage: str,
    cluster: str | None = None,
    settings: list[str] | None = None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    verify: str | None = None,
    retry_failed: StrictBool = False,
    config_dir: str = "configs",
) -> Any:
    """Copy what is missing from a source to a storage.

    Args:
        source: URL or path of what is copied.
        storage: URL or path of where it is copied to.
        cluster: Name of a file in configs/clusters, for its limits and how its storage is reached.
        settings: key.path=value pairs that set fields of source, storage, copy and runner.
        include: Globs of the keys to copy; everything if there is none.
        exclude: Globs of keys to leave out.
        verify: How copies are checked, digest or size; by default what copy.verify says.
        retry_failed: Whether to copy only what the last copy failed for.
        config_dir: The directory with all configuration files.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """

    def work(times: StageTimes) -> dict[str, Any]:
        asked = load_copy_settings(
            source,
            storage,
            cluster=cluster,
            config_dir=config_dir,
            settings=settings or (),
            include=include or (),
            exclude=exclude or (),
            verify=verify,
            retry_failed=retry_failed,
        )
        with task_runner(asked.workers, times) as runner:
            plan = _planned.get()
            if isinstance(plan, CopyPlan) and plan.settings == asked:
                return copying.execute_copy(plan, runner)
            return copying.copy(asked, runner)

    return flow_run(work, copy_lines, artifact="copy")


@flow(
    name="prune",
    flow_run_name="prune {storage} of what is not in {source}",
    persist_result=False,
    validate_parameters=True,
)
def prune(
    source: str,
    storage: str,
    cluster: str | None = None,
    settings: list[str] | None = None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    max_delete: StrictInt | None = None,
    config_dir: str = "configs",
) -> Any:
    """Delete copies of objects that are no longer in the source.

    Args:
        source: URL or path of what was copied.
        storage: URL or path of where it was copied to.
        cluster: Name of a file in configs/clusters, for how its storage is reached.
        settings: key.path=value pairs that set fields of source, storage, copy and runner.
        include: Globs of the keys to look at; everything if there is none.
        exclude: Globs of keys to leave alone.
        max_delete: Delete at most so many objects; by default 1,000, and at most 10 percent.
        config_dir: The directory with all configuration files.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """

    def work(times: StageTimes) -> dict[str, Any]:
        places = load_copy_settings(
            source,
            storage,
            cluster=cluster,
            config_dir=config_dir,
            settings=settings or (),
            include=include or (),
            exclude=exclude or (),
        )
        asked = PruneSettings(places, max_delete)
        with task_runner(1, times) as runner:
            plan = _planned.get()
            if isinstance(plan, PrunePlan) and plan.settings == asked:
                return pruning.execute_prune(plan, runner)
            return pruning.prune(asked, runner)

    return flow_run(work, pruning.prune_lines, artifact="prune")


def run_copy(
    parameters: dict[str, Any], planned: CopyPlan | None, display: Display, *, named: bool
) -> dict[str, Any]:
    """Run the flow `copy` in this process.

    Args:
        parameters: The parameters of the flow.
        planned: What was already planned for this run, if anything.
        display: Reports progress of every stage.
        named: Whether the user configured the server, and so wants to know the run's address.

    Returns:
        The JSON document of the run.

    Raises:
        FatalError: ``run.server``: Prefect's server cannot be reached, or refuses the request.
        KeyboardInterrupt: The user interrupted the run, or cancelled it in Prefect.
    """
    return _run(copy, parameters, planned, display, named=named)


def run_prune(
    parameters: dict[str, Any], planned: PrunePlan | None, display: Display, *, named: bool
) -> dict[str, Any]:
    """Run the flow `prune` in this process; see `run_copy`."""
    return _run(prune, parameters, planned, display, named=named)


def _run(
    called: Any,
    parameters: dict[str, Any],
    planned: CopyPlan | PrunePlan | None,
    display: Display,
    *,
    named: bool,
) -> dict[str, Any]:
    token = _planned.set(planned)
    try:
        return call_flow(called, parameters, display, named=named)
    finally:
        _planned.reset(token)
