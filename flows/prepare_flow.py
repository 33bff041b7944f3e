"""The flows: inventory, plan, mirror, shard, cache, publish, emit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from httpx import HTTPError, HTTPStatusError  # Prefect's
from prefect import flow, get_client
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.settings import get_current_settings
from prefect.states import Cancelled
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.urls import url_for

from flows._cancel import cancellable
from flows._run_log import RunLog, run_log
from flows._secrets import without_auth
from larder.cli.display import Display
from larder.cli.signals import hear_signals, interruptible
from larder.errors import FatalError, LarderError
from larder.pipeline import prepare as composition
from larder.pipeline.inline import workers
from larder.pipeline.job import Job
from larder.pipeline.plan import Plan
from larder.pipeline.settings import Settings, load_settings
from larder.progress import StageTimes
from tasks._options import STOPPED
from tasks._progress import listening, stoppable, timed
from tasks.runner import TaskRunner

__all__ = ["compact", "prepare", "run_prepare"]

_REFUSED = (401, 403)
_NOT_THERE = (404, 405)
_MORE = re.compile(r"[\s-]*For more information check: \S+")
"""What httpx appends to an answer: a page that explains the status."""

_planned: ContextVar[tuple[Plan, Job] | None] = ContextVar("planned", default=None)
"""What the command line has just planned and begun, so that the source is listed only once."""

_shown_on: ContextVar[Display | None] = ContextVar("shown_on", default=None)
"""The display for the address of the run."""


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
    hear_signals()
    try:
        with _reported() as log, timed() as times:
            asked = load_settings(
                dataset,
                cluster,
                config_dir=Path(config_dir),
                settings=settings or (),
                output=Path(output) if output else None,
                compact=compact,
            )
            document = _prepare(asked, times)
            log.outcome(document)
    except LarderError as error:
        if error.code != STOPPED:
            raise
        return Cancelled(
            message="stopped between two objects; run it again to continue", data=error
        )
    return document


def _prepare(asked: Settings, times: StageTimes) -> dict[str, Any]:
    """Run the steps as tasks, with as many concurrent batches as the cluster file says."""
    count = workers(asked)
    # Not the flow's own task runner: whoever starts the flow would choose it and its size.
    threads: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=count)
    with threads as pool:
        runner = TaskRunner(count, pool, times)
        plan, job = _planned.get() or (None, None)
        if plan and job and plan.source_state.settings == asked:
            return composition.execute(plan, job, runner)
        return composition.prepare(asked, runner)


@contextmanager
def _reported() -> Iterator[RunLog]:
    """Connect the run to Prefect: show its address, write its log, and stop if it is cancelled."""
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    assert run is not None, "this is a flow run"
    display = _shown_on.get()
    with ExitStack() as stack:
        if display:
            address = url_for(run)
            if address:
                display.say(f"run: {without_auth(address)}")
        log = stack.enter_context(run_log())
        if not run.deployment_id:
            stop = stack.enter_context(stoppable())
            stack.enter_context(cancellable(run.id, stop, log.say))
        yield log


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
    display.note("prefect", "asking the server")
    _check_server(named)
    display.finish("prefect")
    planned_token = _planned.set(planned)
    shown_token = _shown_on.set(display if named else None)
    with (
        listening(display),
        stoppable() as stop,
        interruptible(stop, display.say),
    ):
        try:
            document: dict[str, Any] = _FLOWS[compact](**parameters)
        except HTTPError as error:
            raise _server_error(error, named) from error
        except Abort as error:  # the server has a final state, and accepts no other
            if stop.is_set():
                raise KeyboardInterrupt from None
            raise _server_error(error, named) from error
        except LarderError as error:
            if error.code == STOPPED:
                raise KeyboardInterrupt from None
            raise
        finally:
            _shown_on.reset(shown_token)
            _planned.reset(planned_token)
    return document


def _check_server(named: bool) -> None:
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error:
        raise _server_error(error, named) from error


def _server_error(error: BaseException, named: bool) -> FatalError:
    url = without_auth(str(get_current_settings().api.url))
    text = _MORE.sub("", without_auth(str(error)))
    hint = "run the same command again"
    if named:
        hint = f"{_advice(error, url)}, then {hint}"
    return FatalError("run.server", f"Prefect's server fails: {text}", where=url, hint=hint)


def _advice(error: BaseException, url: str) -> str:
    """What to do about an answer of the server, or about a missing answer."""
    status = error.response.status_code if isinstance(error, HTTPStatusError) else None
    if status in _REFUSED:
        return "put USER:PASSWORD into PREFECT_API_URL, or set PREFECT_API_AUTH_STRING"
    if status in _NOT_THERE and "api" not in urlsplit(url).path.split("/"):
        return "end PREFECT_API_URL with /api"
    return "check PREFECT_API_URL and that its server runs"
