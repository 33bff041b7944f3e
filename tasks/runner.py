"""Runs the steps of a job as task runs: one for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from queue import SimpleQueue
from typing import Any, cast
from uuid import UUID

from prefect.client.schemas.objects import State, StateDetails
from prefect.futures import PrefectFuture, wait
from prefect.states import Completed
from prefect.task_runners import TaskRunner as PoolOfTasks
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote

from larder.jobs.results import RunError, stops_others
from larder.progress import Progress, TimedProgress
from tasks.progress import current_progress, stoppable
from tasks.steps import TASKS


class TaskRunner:
    """The `larder.jobs.runner.Runner` of a flow run; ``pool`` is started, with at least as many
    workers.

    In the graph of the run, a task follows from those of the previous step, whatever its arguments
    are: many steps have the same one, and Prefect would draw an arrow for each value in it.
    """

    def __init__(self, workers: int, pool: PoolOfTasks[Any], times: TimedProgress) -> None:
        self.times = times
        self._workers = workers
        self._pool = pool
        self._previous: list[State[Any]] = []

    @property
    def progress(self) -> Progress:
        return current_progress()

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run one task in this process."""
        state: Any = TASKS[step](*map(quote, arguments), return_state=True, wait_for=self._previous)
        self._previous = [_end_of(state.state_details.task_run_id)]
        return state.result()

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """One task run for each batch; at most ``workers`` of them are submitted at a time.

        A batch with failed objects is a failed task run, and all such batches are reported
        together. Any other error, or an interrupt, stops the batches in progress after their
        current objects; the others are not submitted. If too much failed in a batch, those in
        progress go on, the others are not submitted, and their results are None.
        """
        concurrent_batches = max(1, min(self._workers, len(batches)))
        results: list[Any] = [None] * len(batches)
        ended: list[State[Any]] = [Completed(data=True)] * len(batches)
        waiting: Iterator[tuple[int, Any]] = iter(enumerate(batches))
        under_way: dict[PrefectFuture[Any], int] = {}
        done: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
        with stoppable() as stop:
            try:
                while True:
                    for place, batch in islice(waiting, concurrent_batches - len(under_way)):
                        parameters = {
                            "job": quote(job),
                            "batch": quote(batch),
                            "concurrent_batches": concurrent_batches,
                        }
                        after = cast(Any, _upstream(self._previous, place, len(batches)))
                        future = self._pool.submit(TASKS[step], parameters, wait_for=after)
                        under_way[future] = place
                        future.add_done_callback(done.put)
                    if not under_way:
                        self._previous = ended or self._previous
                        return results
                    future = done.get()
                    place, result = under_way.pop(future), _outcome(future)
                    results[place], ended[place] = result, _end_of(future.task_run_id)
                    if stops_others(result):
                        waiting = iter(())
            except BaseException:
                stop.set()
                wait(list(under_way))
                raise


@contextmanager
def task_runner(workers: int, times: TimedProgress) -> Iterator[TaskRunner]:
    """The runner of a flow run, with threads of its own.

    Not the flow's own task runner: whoever starts the flow would choose it and its size.
    """
    threads: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=workers)
    with threads as pool:
        yield TaskRunner(workers, pool, times)


def _end_of(task_run: UUID | None) -> State[Any]:
    """A state that says only which task run has ended: Prefect looks for arrows in results, too."""
    return Completed(data=True, state_details=StateDetails(task_run_id=task_run))


def _upstream(previous: list[State[Any]], place: int, batches: int) -> list[State[Any]]:
    """What a batch is drawn after: of many batches one, so that arrows neither multiply nor cross.

    >>> _upstream(["a", "b"], 2, 4)
    ['b']
    """
    return [previous[place * len(previous) // batches]] if previous else []


def _outcome(future: PrefectFuture[Any]) -> Any:
    try:
        return future.result()
    except RunError as error:
        return error.report
