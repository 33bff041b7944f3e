"""Flow runs of steps that are made up, in Larder's tasks; prints as JSON what they did."""

import json
import sys
import threading
from contextlib import nullcontext
from time import sleep
from typing import Any
from unittest import mock

from prefect import flow, get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter
from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner

from larder.errors import Failure, FatalError, LarderError, ObjectError, RetryableError, StoreError
from larder.jobs.results import BatchReport, Totals
from larder.progress import StageTimes
from tasks import artifacts, steps
from tasks import task_runner as runner
from tasks.task_runner import BatchExecutor, task_runner

WORKERS = 2


class Threads(ThreadPoolTaskRunner[Any]):
    """Threads of Prefect; counts the task runs that are submitted before a result is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = self.most = 0

    def submit(self, *arguments: Any, **options: Any) -> Any:
        future = super().submit(*arguments, **options)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        result = future.result

        def taken() -> Any:
            self.under_way -= 1
            return result()

        future.result = taken  # type: ignore[assignment,method-assign]
        return future


def flow_of(
    step: Any, name: str, batches: str, threads: Threads | None = None, **options: Any
) -> list[Any]:
    """Map a step over batches in a flow run, in threads of Prefect; returns its results."""
    task = steps.task_of(steps.Step(step, "shard", "batch {batch}")).with_options(**options)

    @flow(flow_run_name=name)
    def run() -> list[Any]:
        with threads or Threads() as opened:
            pool = nullcontext(BatchExecutor(opened, WORKERS, WORKERS))
            with task_runner(pool, lambda _: nullcontext(), StageTimes()) as tasks:
                return tasks.map(step, None, batches)

    with mock.patch.dict(runner.TASKS, {step: task}):
        return run()


def retried(error: Exception, failures: int) -> list[Any]:
    """Count the tries of a batch that fails a number of times; true if the last one works."""
    calls = []

    def step(job: None, batch: str, *, progress: Any, concurrent_batches: int) -> BatchReport:
        calls.append(batch)
        if len(calls) <= failures:
            raise error
        return BatchReport()

    try:
        flow_of(step, "retries", "a", retry_delay_seconds=0, retry_jitter_factor=None)
    except (LarderError, ValueError):
        return [len(calls), False]
    return [len(calls), True]


def window(name: str, *, fails: bool) -> dict[str, Any]:
    """Run six batches, of which two report a failure, or one fails altogether."""
    two = threading.Barrier(WORKERS)  # both at work, each time
    begun: list[str] = []
    stopped: list[str] = []
    threads = Threads()

    def step(job: None, batch: str, *, progress: Any, concurrent_batches: int) -> BatchReport:
        assert concurrent_batches == WORKERS
        begun.append(batch)
        if not fails or batch in "ab":
            two.wait(60)
        if not fails:
            failed = (Failure(batch, "sample.empty", "empty"),) if batch in "bd" else ()
            return BatchReport(Totals(1, 2), failed, len(failed))
        if batch == "b":
            raise StoreError("store.denied", "no")
        try:
            while True:
                progress.advance("shard", objects=1)
        except FatalError as error:
            stopped.append(error.code)
            raise

    code, reports = "", []
    try:
        reports = flow_of(step, name, "abcdef", threads)
    except StoreError as error:
        code = error.code
    failed = [failure.key for report in reports for failure in report.failures]
    found = {"begun": sorted(begun), "most": threads.most, "error": code, "stopped": stopped}
    return {**found, "failed": failed, "done": sum(report.done.count for report in reports)}


def kept_results() -> list[int]:
    def step(job: Any, *, progress: Any) -> dict[str, int]:
        return {"results": len(FlowRunContext.get().run_results)}  # type: ignore[union-attr]

    @flow
    def both() -> list[int]:
        with task_runner(nullcontext(), nullcontext, StageTimes()) as tasks:  # type: ignore[arg-type]
            return [tasks.run(step, number)["results"] for number in range(2)]

    with mock.patch.dict(runner.TASKS, {step: steps.task_of(steps.Step(step, "plan", "step"))}):
        return both()


def shown(percent: float) -> tuple[str, str]:
    """Wait until this flow run has a progress; returns the ID and the text of that."""
    run = FlowRunContext.get().flow_run.id  # type: ignore[union-attr]
    of_run = FlowRunFilter.model_validate({"id": {"any_": [run]}})
    kind = ArtifactFilter.model_validate({"type": {"any_": ["progress"]}})
    for _ in range(600):
        with get_client(sync_client=True) as client:
            found = client.read_artifacts(flow_run_filter=of_run, artifact_filter=kind)
        if found and float(found[0].data) == percent:
            (only,) = found
            return str(only.id), str(only.description)
        sleep(0.05)
    sys.exit(f"{percent}% was not shown")


@flow
def slow_stages() -> list[tuple[str, str]]:
    times, seen = StageTimes(), []
    with artifacts.stage_progress(times):
        times.start("publish")
        times.start("mirror", objects=4, bytes=4_000)
        times.advance("mirror", objects=1, bytes=1_000)
        seen.append(shown(25.0))
        times.advance("mirror", objects=2, bytes=2_000)
        seen.append(shown(75.0))
        times.finish("mirror")
    return [*seen, shown(100.0)]


if __name__ == "__main__":
    artifacts.PROGRESS_INTERVAL_SECONDS = 0.1
    document = {
        "retryable, twice": retried(RetryableError("store.unavailable", "no"), 2),
        "retryable": retried(RetryableError("store.unavailable", "no"), 9),
        "unforeseen, twice": retried(ValueError("no"), 2),
        "object": retried(ObjectError("object.unreadable", "no"), 9),
        "store": retried(StoreError("store.denied", "no"), 9),
        "all": window("window of all", fails=False),
        "stop": window("window that stops", fails=True),
        "kept": kept_results(),
        "progress": slow_stages(),
    }
    print(json.dumps(document))
