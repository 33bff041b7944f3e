"""What the flows share: a flow run in this process, with its log, its address and its end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from httpx import HTTPError, HTTPStatusError  # Prefect's
from prefect import Flow, get_client
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.settings import get_current_settings
from prefect.states import Cancelled
from prefect.utilities.urls import url_for

from flows.runs.page import RunLog, findings, run_log, summary
from flows.runs.secrets import without_auth
from larder.cli.command import Command, Operation
from larder.cli.display import Display
from larder.cli.signals import hear_signals, interruptible
from larder.errors import FatalError, LarderError
from larder.jobs.runner import Execute
from tasks.progress import listening, stoppable
from tasks.runner import task_runner
from tasks.steps import STOPPED

POLL_SECONDS = 5.0
_REFUSED = (401, 403)
_NOT_THERE = (404, 405)
_MORE = re.compile(r"[\s-]*For more information check: \S+")
"""What httpx appends to an answer: a page that explains the status."""


def flow_run(command: Command) -> Any:
    """The body of the flow of a command: run its operation with the flow's parameters.

    Returns the JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """

    def begin() -> tuple[Operation, Execute]:
        given = (_context().parameters or {}).items()
        operation = command.operation(**{name: value for name, value in given if value is not None})
        return operation, operation.compose

    return _body(command.name, begin)


def _body(
    name: str, begin: Callable[[], tuple[Operation, Execute]], display: Display | None = None
) -> Any:
    hear_signals()
    try:
        with _reported(display) as log:
            operation, execute = begin()
            with task_runner(operation.workers, log.progress) as runner:
                document = execute(runner)
            log.outcome(document, operation.lines)
            if "findings" in document:
                findings(document)
            summary(name, operation.lines(document))
    except LarderError as error:
        if error.code != STOPPED:
            raise
        return Cancelled(
            message="stopped between two objects; run it again to continue", data=error
        )
    return document


def _context() -> FlowRunContext:
    context = FlowRunContext.get()
    assert context is not None, "this is a flow run"
    return context


@contextmanager
def _reported(display: Display | None) -> Iterator[RunLog]:
    """Connect the run to Prefect: show its address, write its log, and stop if it is cancelled."""
    run = _context().flow_run
    assert run is not None, "it has begun"
    with ExitStack() as stack:
        address = url_for(run) if display else None
        if display and address:
            display.say(f"run: {without_auth(address)}")
        log = stack.enter_context(run_log())
        if not run.deployment_id:
            stop = stack.enter_context(stoppable())
            stack.enter_context(_cancellable(run.id, stop, log.say))
        yield log


@contextmanager
def _cancellable(
    flow_run: UUID, stop: threading.Event, say: Callable[[str], None]
) -> Iterator[None]:
    """Set ``stop`` once the flow run is Cancelling or Cancelled, within a ``with`` block.

    A worker ends the runs that it started itself, but nothing else would end a run started by a
    command.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            # A server that is temporarily unavailable must not end the run.
            with suppress(Exception), get_client(sync_client=True) as client:
                state = client.read_flow_run(flow_run).state
                if state and (state.is_cancelling() or state.is_cancelled()):
                    say("cancelled in Prefect: stopping after the objects in progress")
                    stop.set()
                    return

    watcher = threading.Thread(target=watch, name="cancel-watcher", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()


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

    Args:
        flow: The flow.
        parameters: Its parameters.
        operation: What they led to.
        execute: What is left of it, after what the command has done already.
        display: Reports progress of every stage.
        named: Whether the user configured the server, and so wants to know the run's address.

    Raises:
        FatalError: ``run.server``: Prefect's server cannot be reached, or refuses the request.
        KeyboardInterrupt: The user interrupted the run, or cancelled it in Prefect.
    """
    display.note("prefect", "asking the server")
    _check_server(named)
    display.finish("prefect")

    @wraps(flow.fn)
    def body(**_parameters: Any) -> Any:
        return _body(flow.name, lambda: (operation, execute), display if named else None)

    continued = flow.with_options(validate_parameters=False)  # the command has checked them
    continued.fn = body
    with listening(display), stoppable() as stop, interruptible(stop, display.say):
        try:
            document: dict[str, Any] = continued(**parameters)
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
