"""Runs the steps of a job as task runs: one for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from queue import SimpleQueue
from typing import Any

from prefect.futures import PrefectFuture, wait
from prefect.task_runners import TaskRunner as PoolOfTasks
from prefect.task_runners import ThreadPoolTaskRunner

from larder.jobs.results import RunError, stops_others
from larder.pipeline import (
    cache,
    configs,
    copying,
    copying_end,
    copying_job,
    index,
    mirror,
    plan_checks,
    pruning,
    publish,
    shard,
    source,
)
from larder.progress import Progress, TimedProgress
from larder.verify import aside, inspection, reading, repair
from tasks import cache as cache_tasks
from tasks import copy as copy_tasks
from tasks import emit as emit_tasks
from tasks import mirror as mirror_tasks
from tasks import plan as plan_tasks
from tasks import prune as prune_tasks
from tasks import publish as publish_tasks
from tasks import shard as shard_tasks
from tasks import source as source_tasks
from tasks import verify as verify_tasks
from tasks._options import call
from tasks.progress import current_progress, stoppable

_TASKS: dict[Callable[..., Any], Any] = {
    source.inspect_source: source_tasks.inspect_source,
    plan_checks.checked_plan: plan_tasks.checked_plan,
    mirror.mirror_batch: mirror_tasks.mirror_batch,
    mirror.send_mirror_ahead: mirror_tasks.send_mirror_ahead,
    shard.shard_batch: shard_tasks.shard_batch,
    index.index_shards: shard_tasks.index_shards,
    cache.cache_split: cache_tasks.cache_split,
    publish.publish: publish_tasks.publish,
    publish.publish_existing: publish_tasks.publish_existing,
    configs.emit_configs: emit_tasks.emit_configs,
    copying.checked_copy: copy_tasks.checked_copy,
    copying_job.copy_objects: copy_tasks.copy_objects,
    copying_job.send_ahead: copy_tasks.send_ahead,
    copying_end.end_copy: copy_tasks.end_copy,
    pruning.plan_prune: prune_tasks.plan_prune,
    pruning.prune_objects: prune_tasks.prune_objects,
    inspection.inspect_version: verify_tasks.inspect_version,
    reading.verify_batch: verify_tasks.verify_batch,
    aside.set_aside: verify_tasks.set_aside,
    aside.put_back: verify_tasks.put_back,
    aside.end_repair: verify_tasks.end_repair,
    repair.repair_small: verify_tasks.repair_small,
    repair.name_version: verify_tasks.name_version,
    repair.repair_large: verify_tasks.repair_large,
}


class TaskRunner:
    """The `larder.pipeline.build.Runner` of a flow run; ``pool`` is started, with at least as many
    workers.
    """

    def __init__(self, workers: int, pool: PoolOfTasks[Any], times: TimedProgress) -> None:
        self.times = times
        self._workers = workers
        self._pool = pool

    @property
    def progress(self) -> Progress:
        return current_progress()

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run one task in this process."""
        return call(_TASKS[step], *arguments)

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """One task run for each batch; at most ``workers`` of them are submitted at a time.

        A batch with failed objects is a failed task run, and all such batches are reported
        together. Any other error, or an interrupt, stops the batches in progress after their
        current objects; the others are not submitted. If too much failed in a batch, those in
        progress go on, the others are not submitted, and their results are None.
        """
        concurrent_batches = max(1, min(self._workers, len(batches)))
        results: list[Any] = [None] * len(batches)
        waiting: Iterator[tuple[int, Any]] = iter(enumerate(batches))
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
                    result = _outcome(future)
                    results[under_way.pop(future)] = result
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


def _outcome(future: PrefectFuture[Any]) -> Any:
    try:
        return future.result()
    except RunError as error:
        return error.report
