"""Runs the steps of a job as task runs: one for each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prefect.futures import PrefectFuture, as_completed, wait

from larder.pipeline import cache, index, mirror, publish, shard
from larder.pipeline.job import Job
from larder.progress import Progress
from tasks import cache as cache_tasks
from tasks import mirror as mirror_tasks
from tasks import publish as publish_tasks
from tasks import shard as shard_tasks
from tasks._progress import current_progress, stoppable

__all__ = ["TaskRunner"]

_TASKS: dict[Callable[..., Any], Any] = {
    mirror.mirror_batch: mirror_tasks.mirror_batch,
    mirror.seal_mirror: mirror_tasks.seal_mirror,
    shard.shard_batch: shard_tasks.shard_batch,
    index.index_shards: shard_tasks.index_shards,
    cache.cache_split: cache_tasks.cache_split,
    publish.publish: publish_tasks.publish,
    publish.republish: publish_tasks.republish,
}


class TaskRunner:
    """The `larder.pipeline.build.Runner` of a flow run.

    Args:
        workers: Batches that run at once; what the flow's own task runner allows.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    @property
    def progress(self) -> Progress:
        """Who listens in this process."""
        return current_progress()

    def run(self, step: Callable[..., Any], job: Job, *arguments: Any) -> Any:
        """One task run, here and now."""
        return _TASKS[step](job, *arguments)

    def map(self, step: Callable[..., Any], job: Job, batches: Sequence[Any]) -> list[Any]:
        """One task run for each batch. The first error, or an interrupt, stops the others."""
        beside = max(1, min(self._workers, len(batches)))
        with stoppable() as stop:
            futures: list[PrefectFuture[Any]] = [
                _TASKS[step].submit(job, batch, beside) for batch in batches
            ]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                stop.set()
                wait(futures)
                raise
        return [future.result() for future in futures]
