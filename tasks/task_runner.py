"""Runs the steps of a job as task runs: one for each batch, here or on Dask or Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, cast
from uuid import UUID

from prefect.client.schemas.objects import State, StateDetails
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture, wait
from prefect.states import Completed
from prefect.task_runners import TaskRunner as PoolOfTasks
from prefect.utilities.annotations import quote

from larder.config.models.locations import Location
from larder.errors import FatalError, NotFoundError
from larder.jobs.crew import Crew
from larder.jobs.results import RunError, stops_others
from larder.progress import Progress, TimedProgress
from larder.store import open_location
from tasks.run_progress import POLL_SECONDS, RemoteResult, current_progress, stoppable, working_with
from tasks.steps import ELSEWHERE, TASKS

_CLUSTERS = ("distributed", "ray")


@dataclass(frozen=True, slots=True)
class BatchExecutor:
    """Threads or processes that run batches.

    Attributes:
        together: Maximum number of batches on one machine, which share its memory and connections.
        elsewhere: Whether batches run in processes that know nothing of this process.
        idle: Called while batches are waited for.
    """

    tasks: PoolOfTasks[Any]
    batches_at_once: int
    together: int
    elsewhere: bool = False
    idle: Callable[[], None] = lambda: None


class TaskRunner:
    """`larder.jobs.step_runner.Runner` of a flow run; its executor is opened for the first batches.

    In the graph of the run, a task follows from tasks of the previous step, not from its arguments:
    many steps have the same argument, and Prefect would draw an arrow for each value in it.
    """

    def __init__(
        self,
        open_executor: Callable[[], BatchExecutor],
        claim: Callable[[str], AbstractContextManager[None]],
        times: TimedProgress,
    ) -> None:
        self.times = times
        self.claim = claim
        self._open_executor = open_executor
        self._previous: list[State[Any]] = []

    @property
    def progress(self) -> Progress:
        return current_progress()

    @property
    def flow_run(self) -> str:
        context = FlowRunContext.get()
        run = context.flow_run if context else None
        return f"{run.name} {run.id}" if run else ""

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        _forget_results()
        state: Any = TASKS[step](*map(quote, arguments), return_state=True, wait_for=self._previous)
        self._previous = [_end_of(state.state_details.task_run_id)]
        return state.result()

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """Make a task run for each batch, and submit at most `batches_at_once` of them at a time.

        A batch with failed objects is a failed task run, and all such batches are reported
        together. Any other error, or an interrupt, stops the batches in progress after their
        current objects; the others are not submitted. If too much failed in a batch, batches in
        progress go on, the others are not submitted, and their results are None.
        """
        if not batches:
            return []
        executor = self._open_executor()
        at_once, together = (
            min(each, len(batches)) for each in (executor.batches_at_once, executor.together)
        )
        task = (ELSEWHERE if executor.elsewhere else TASKS)[step]
        # Dask and Ray would turn quoted values into a tuple.
        sent: Callable[[Any], Any] = (lambda value: value) if executor.elsewhere else quote
        results: list[Any] = [None] * len(batches)
        ended: list[State[Any]] = [Completed(data=True)] * len(batches)
        waiting: Iterator[tuple[int, Any]] = iter(enumerate(batches))
        under_way: dict[PrefectFuture[Any], int] = {}
        done: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
        count = 1 if executor.elsewhere else executor.batches_at_once
        with (
            stoppable() as stop,
            closing(Crew.of(step, job, batches, count)) as crew,
            working_with(crew),
        ):
            try:
                while True:
                    for place, batch in islice(waiting, at_once - len(under_way)):
                        parameters = {
                            "job": sent(job),
                            "batch": sent(batch),
                            "concurrent_batches": sent(together),
                        }
                        if executor.elsewhere:
                            parameters["shares"] = at_once
                        _forget_results()
                        after = cast(Any, _upstream(self._previous, place, len(batches)))
                        future = executor.tasks.submit(task, parameters, wait_for=after)
                        under_way[future] = place
                        future.add_done_callback(done.put)
                    if not under_way:
                        self._previous = ended
                        return results
                    future = self._next(done, executor)
                    place, result = under_way.pop(future), _outcome(future)
                    if isinstance(result, RemoteResult):
                        result = self._told(result)
                    results[place], ended[place] = result, _end_of(future.task_run_id)
                    if stops_others(result):
                        waiting = iter(())
            except BaseException:
                stop.set()
                if not executor.elsewhere:  # there, each batch asks the server (`reported_later`)
                    wait(list(under_way))
                raise

    def _next(
        self, done: SimpleQueue[PrefectFuture[Any]], executor: BatchExecutor
    ) -> PrefectFuture[Any]:
        """Wait for the next future that is done; raises once the run should end."""
        while True:
            try:
                return done.get(timeout=POLL_SECONDS)
            except Empty:
                current_progress()
                executor.idle()

    def _told(self, done: RemoteResult) -> Any:
        for stage, did in done.stages.items():
            self.progress.advance(stage, objects=did["objects"], bytes=did["bytes"])
        return done.result


@contextmanager
def task_runner(
    executor: AbstractContextManager[BatchExecutor],
    claim: Callable[[str], AbstractContextManager[None]],
    times: TimedProgress,
) -> Iterator[TaskRunner]:
    """Make the runner of a flow run. Prefect's own would be chosen by the caller of the flow."""
    with ExitStack() as stack:
        yield TaskRunner(cache(lambda: stack.enter_context(executor)), claim, times)


def _forget_results() -> None:
    """Leave no results for Prefect to draw arrows from: it finds them by reused addresses."""
    if context := FlowRunContext.get():
        context.run_results.clear()


def _end_of(task_run: UUID | None) -> State[Any]:
    """Return a state with only the ID of a task run: Prefect looks for arrows in results, too."""
    return Completed(data=True, state_details=StateDetails(task_run_id=task_run))


def _upstream(previous: list[State[Any]], place: int, batches: int) -> list[State[Any]]:
    """Choose at most one earlier task before a batch, so that arrows neither multiply nor cross.

    >>> _upstream(["a", "b"], 2, 4)
    ['b']
    """
    return [previous[place * len(previous) // batches]] if previous else []


def _outcome(future: PrefectFuture[Any]) -> Any:
    try:
        return future.result()
    except RunError as error:
        return error.report
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _CLUSTERS:
            raise
        message = f"a batch was lost with its worker: {error}"
        raise FatalError("run.failed", message, hint="run again to continue") from error


def first_object(storage: Location) -> tuple[str, int]:
    first = next(page[0] for page in open_location(storage).list() if page)
    return first.key, first.size_bytes


def see_object(storage: Location, key: str, size_bytes: int) -> None:
    """Raise `NotFoundError` if this machine sees no object of this key and size in a storage."""
    if open_location(storage).head(key).size_bytes != size_bytes:
        raise NotFoundError("object.missing", "another object has its key", where=key)
