"""Runs the steps of a job as task runs: one for each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from queue import SimpleQueue
from typing import Any

from prefect.futures import PrefectFuture, wait
from prefect.task_runners import TaskRunner as PoolOfTasks

from larder.pipeline import cache, index, mirror, publish, shard
from larder.pipeline.job import Job
from larder.pipeline.results import RunError
from larder.progress import Progress
from tasks import cache as cache_tasks
from tasks import mirror as mirror_tasks
from tasks import publish as publish_tasks
from tasks import shard as shard_tasks
from tasks._options import call
from tasks._progress import current_progress, stoppable

__all__ = ["TaskRunner"]

_TASKS: dict[Callable[..., Any], Any] = {
    mirror.mirror_batch: mirror_tasks.mirror_batch,
    shard.shard_batch: shard_tasks.shard_batch,
    index.index_shards: shard_tasks.index_shards,
    cache.cache_split: cache_tasks.cache_split,
    publish.publish: publish_tasks.publish,
    publish.publish_existing: publish_tasks.publish_existing,
}


class TaskRunner:
    """The `larder.pipeline.build.Runner` of a flow run.

    Args:
        workers: Batches that run at once.
        pool: Prefect's task runner, started, that has room for so many.
    """

    def __init__(self, workers: int, pool: PoolOfTasks[Any]) -> None:
        self._workers = workers
        self._pool = pool

    @property
    def progress(self) -> Progress:
        """Who listens in this process."""
        return current_progress()

    def run(self, step: Callable[..., Any], job: Job, *arguments: Any) -> Any:
        """One task run, here and now."""
        return call(_TASKS[step], job, *arguments)

    def map(self, step: Callable[..., Any], job: Job, batches: Sequence[Any]) -> list[Any]:
        """One task run for each batch; what is submitted and not done never exceeds ``workers``.

        A batch whose objects failed is a failed task run, and all such batches are reported
        together. Any other error, or an interrupt, stops the batches under way after the objects
        that they are at; those not yet submitted never are.
        """
        concurrent_batches = max(1, min(self._workers, len(batches)))
        results: list[Any] = [None] * len(batches)
        waiting = iter(enumerate(batches))
        under_way: dict[PrefectFuture[Any], int] = {}
        done: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
        with stoppable() as stop:
            try:
                while True:
                    for place, batch in islice(waiting, concurrent_batches - len(under_way)):
                        parameters = {
                            "job": job,
                            "batch": batch,
                            "concurrent_batches": concurrent_batches,
                        }
                        future = self._pool.submit(_TASKS[step], parameters)
                        under_way[future] = place
                        future.add_done_callback(done.put)
                    if not under_way:
                        return results
                    future = done.get()
                    results[under_way.pop(future)] = _outcome(future)
            except BaseException:
                stop.set()
                wait(list(under_way))
                raise


def _outcome(future: PrefectFuture[Any]) -> Any:
    try:
        return future.result()
    except RunError as error:
        return error.report
