"""Progress, stopping and shared processes of the tasks of a flow run.

These are not parameters of tasks, because parameters are shown, hashed and possibly sent elsewhere.
Prefect's thread task runner passes context variables on. A batch in a process of Dask or Ray, which
may be on another machine, returns its progress with its result, and does not report it before; it
learns from Prefect's server that its flow run has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, TypeVar
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext

from larder.jobs.crew import Crew
from larder.progress import CancellableProgress, NullProgress, Progress, StageTimes

POLL_SECONDS = 2.0

T = TypeVar("T")

_listener: ContextVar[Progress] = ContextVar("listener", default=NullProgress())  # noqa: B039
_stop: ContextVar[Event | None] = ContextVar("stop", default=None)
_crew: ContextVar[Crew] = ContextVar("crew", default=Crew(1))  # noqa: B039


@contextmanager
def set_within(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def current_flow_run() -> FlowRun:
    context = FlowRunContext.get()
    assert context is not None, "this is a flow run"
    assert context.flow_run is not None, "it has begun"
    return context.flow_run


def current_listener() -> Progress:
    return _listener.get()


def current_progress() -> Progress:
    """Return the current `Progress`; it raises at every call once the tasks are asked to stop."""
    stop = _stop.get()
    return CancellableProgress(_listener.get(), stop) if stop else _listener.get()


def listening(progress: Progress) -> AbstractContextManager[None]:
    return set_within(_listener, progress)


def current_crew() -> Crew:
    """Return the processes of batches; a function, as Dask and Ray pickle no context variable."""
    return _crew.get()


def working_with(crew: Crew) -> AbstractContextManager[None]:
    return set_within(_crew, crew)


@contextmanager
def stoppable() -> Iterator[Event]:
    """Yield an event that stops the tasks of a ``with`` block; nested blocks share the event."""
    event = _stop.get() or Event()
    with set_within(_stop, event):
        yield event


def run_ended(flow_run: UUID) -> Callable[[], str]:
    """Why the work of a flow run should stop: Prefect says so. Empty if it should not."""

    def reason() -> str:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run).state
        ended = state is not None and (state.is_cancelling() or state.is_final())
        return "cancelled in Prefect" if ended else ""

    return reason


@contextmanager
def stopped_for(
    reason: Callable[[], str], stop: Event, say: Callable[[str], object] = str
) -> Iterator[None]:
    """Set ``stop`` once there is a reason, within a ``with`` block."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            with suppress(Exception):  # a server that is briefly unavailable must not end the run
                if why := reason():
                    stop.set()
                    say(f"{why}: stopping after the objects in progress")
                    return

    # Without the context, which names the server, a worker would start a server.
    watcher = Thread(target=copy_context().run, args=(watch,), name="stop-watcher", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """The result of a batch, and the work of each stage, as in `StageTimes.stages`."""

    result: Any
    stages: Mapping[str, Mapping[str, Any]]


@contextmanager
def reported_later() -> Iterator[StageTimes]:
    """Collect the progress of a ``with`` block, and stop it once its flow run has ended."""
    times = StageTimes()
    with (
        listening(times),
        stoppable() as stop,
        stopped_for(run_ended(current_flow_run().id), stop),
    ):
        yield times
