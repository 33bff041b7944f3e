"""Common code of flows: a flow run in this process, with its log, its address and its end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import prefect
from httpx import HTTPError, HTTPStatusError  # Prefect's
from prefect import Flow, flow, get_client
from prefect.exceptions import Abort
from prefect.runtime import flow_run
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Crashed, Failed
from prefect.utilities.urls import url_for

from flows.runs.batch_executors import executor_for
from flows.runs.configure import check_runner
from flows.runs.form import command_parameters, form_of, run_name, set_form
from flows.runs.limits import bucket_limit, dataset_limit
from flows.runs.run_page import (
    AGAIN,
    RunLog,
    change_tags,
    findings,
    log_end,
    run_log,
    skipped,
    summary,
)
from flows.runs.secrets import without_auth
from larder.cli.command import Command, Operation
from larder.cli.display import Display
from larder.cli.exit import refusal
from larder.cli.signals import hear_signals, interruptible
from larder.errors import FatalError, LarderError
from larder.jobs.results import RunError
from larder.jobs.step_runner import Execute
from tasks.artifacts import about
from tasks.run_progress import current_flow_run, listening, run_ended, stoppable, stopped_for
from tasks.steps import STOPPED
from tasks.task_runner import task_runner

_CLAIMING = ("compact", "prepare", "refresh")
"""The commands that claim a dataset, and the bucket only then."""

_REFUSED = (401, 403)
_NOT_THERE = (404, 405)
_MORE = re.compile(r"[\s-]*For more information check: \S+")
"""httpx's addition to an answer: a page that explains the status."""


class _CommandRun(NamedTuple):
    """Values from a command to its flow; ``display`` is set if the run's address is shown."""

    operation: Operation
    execute: Execute
    display: Display | None


_command_run: ContextVar[_CommandRun | None] = ContextVar("command_run", default=None)


def flow_of(command: Command, name: str) -> Flow[..., Any]:
    """Make the flow of a command; ``name`` is the template of the names of its runs.

    A flow run returns the JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """

    def run(*_: Any, **__: Any) -> Any:
        return _run(command)

    set_form(run, command)
    named = flow(name=command.name, flow_run_name=run_name(name), persist_result=False)
    return named(run)


def _run(command: Command) -> Any:
    hear_signals()
    parent = os.getppid()
    dataset = command_parameters(flow_run.parameters).get("dataset", "")
    try:
        operation, execute, display = _command_run.get() or _begun(command)
        with about(dataset, operation.storage.url), _reported(display, parent) as log:
            bucket = partial(bucket_limit, operation.storage.url, log.say)

            @contextmanager
            def claim(dataset: str) -> Iterator[None]:
                with dataset_limit(dataset, log.say), bucket(), about(dataset):
                    yield

            with (
                nullcontext() if command.name in _CLAIMING else bucket(),
                task_runner(executor_for(operation, log.say), claim, log.progress) as runner,
            ):
                try:
                    document = execute(runner)
                except RunError as error:
                    if error.document:
                        log.outcome(error.document, operation.lines)
                        summary(command.name, operation.lines(error.document))
                    raise
            log.outcome(document, operation.lines)
            if "findings" in document:
                findings(document)
            if "skipped" in document:
                skipped(document)
            summary(command.name, operation.lines(document))
            change_tags(add=_tags(document), remove={"failed"})  # of an earlier try
    except Exception as error:  # noqa: BLE001 - Prefect would log it, with a traceback
        if isinstance(error, LarderError) and error.code == STOPPED:
            end = Cancelled if os.getppid() == parent else Crashed  # the worker is gone
            return end(message=f"stopped between two objects; {AGAIN}", data=error)
        change_tags(add={"failed"})
        shown = _server_error(error, named=True) if isinstance(error, HTTPError) else refusal(error)
        return Failed(message=log_end(shown, error), data=error)
    return document


def _tags(document: Mapping[str, Any]) -> set[str]:
    """Return tags for the list of runs: the status of the run, and its version, if any."""
    datasets = document.get("datasets", [document])
    tags = {each["status"] for each in datasets if "status" in each}
    return tags | {document["version"]} if tags and "version" in document else tags


def _begun(command: Command) -> _CommandRun:
    defaults = {name: each.default for name, each in command.parser().parameters().items()}
    parameters = defaults | command_parameters(flow_run.parameters)
    plan_only = parameters.pop("plan", False)
    operation = command.operation(**parameters)
    if plan_only:
        operation = operation.planning()
    else:
        check_runner(operation.runner)
    return _CommandRun(operation, operation.compose, None)


@contextmanager
def _reported(display: Display | None, parent: int) -> Iterator[RunLog]:
    """Connect the run to Prefect: show its address, write its log, and stop if it is cancelled."""
    run = current_flow_run()
    with ExitStack() as stack:
        address = url_for(run) if display else None
        if display and address:
            display.say(f"run: {without_auth(address)}")
        log = stack.enter_context(run_log())
        stop = stack.enter_context(stoppable())
        # A worker ends the runs that it started itself, but not if it is killed; and nothing else
        # would end a run started by a command.
        reason = _worker_gone(parent) if run.deployment_id else run_ended(run.id)
        stack.enter_context(stopped_for(reason, stop, log.say))
        yield log


def _worker_gone(worker: int) -> Callable[[], str]:
    """Why a run of a worker should stop: it has another parent. Empty if it should not."""
    return lambda: "" if os.getppid() == worker else "the worker is gone"


def call_flow(
    flow: Flow[..., Any],
    parameters: dict[str, Any],
    operation: Operation,
    execute: Execute,
    display: Display,
    *,
    named: bool,
) -> dict[str, Any]:
    """Run a flow in this process, and return the JSON document of the run.

    ``operation`` is made from the parameters, and ``execute`` is the rest of it, after the
    command's own part. ``named`` says whether the user configured the server, and so needs the
    run's address.

    FatalError: ``run.server``: Prefect's server cannot be reached, or refuses the request.
    KeyboardInterrupt: The user interrupted the run, or cancelled it in Prefect.
    """
    display.note("prefect", "asking the server")
    _check_server(named)
    display.finish("prefect")

    continued = flow.with_options(validate_parameters=False)  # the command has checked them
    token = _command_run.set(_CommandRun(operation, execute, display if named else None))
    with listening(display), stoppable() as stop, interruptible(stop, display.say):
        try:
            document: dict[str, Any] = continued(**form_of(parameters))
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
            _command_run.reset(token)
    return document


def _check_server(named: bool) -> None:
    with get_client(sync_client=True) as client:
        if error := client.api_healthcheck():
            raise _server_error(error, named) from error
        try:
            client.raise_for_api_version_mismatch_once()
        except (RuntimeError, HTTPError) as refused:
            raise _server_error(refused, named) from refused


@contextmanager
def server_errors() -> Iterator[None]:
    """Raise errors of the configured server within a ``with`` block as ``run.server``."""
    _check_server(named=True)
    try:
        yield
    except HTTPError as error:
        raise _server_error(error, named=True) from error


def _server_error(error: BaseException, named: bool) -> FatalError:
    url = without_auth(str(get_current_settings().api.url))
    text = _MORE.sub("", without_auth(str(error)))
    hint = "run the same command again"
    if named:
        hint = f"{_advice(error, url)}, then {hint}"
    return FatalError("run.server", f"Prefect's server fails: {text}", where=url, hint=hint)


def _advice(error: BaseException, url: str) -> str:
    """Return a hint for an answer of the server, or for a missing answer."""
    if isinstance(error, RuntimeError):
        return f"use a server of Prefect {prefect.__version__} or newer"
    status = error.response.status_code if isinstance(error, HTTPStatusError) else None
    if status in _REFUSED:
        return "set PREFECT_API_AUTH_STRING to the server's USER:PASSWORD"
    if status in _NOT_THERE and "api" not in urlsplit(url).path.split("/"):
        return "end PREFECT_API_URL with /api"
    return "check PREFECT_API_URL and that its server runs"
