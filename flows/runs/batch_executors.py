"""Executors for the batches of a flow run: threads, Dask or Ray, by Prefect's own task runners.

Dask and Ray are started, or connected to, when the first batches come: most steps have none.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.runs.configure import CONNECT_SECONDS, runner_refusal
from larder.budgets import batches_at_once
from larder.cli.command import Operation
from larder.config.models.locations import Location
from tasks.task_runner import BatchExecutor, first_object, see_object

RAY_ATTEMPTS = 3


@contextmanager
def executor_for(
    operation: Operation, say: Callable[[str], object] = str
) -> Iterator[BatchExecutor]:
    """Open the executor for the batches of an operation; or raise ``config.runner``."""
    runner = operation.runner
    if runner.kind == "local":
        with ThreadPoolTaskRunner[Any](max_workers=operation.batches_at_once) as threads:
            yield BatchExecutor(threads, operation.batches_at_once, operation.batches_at_once)
        return
    address = runner.address
    with (_dask if runner.kind == "dask" else _ray)(address, operation.batches_at_once) as opened:
        tasks, machines, on_every_worker, alive = opened
        if address and operation.storage.access.block is None:
            _check_workers(address, operation.storage, on_every_worker)
        most = max(machines.values(), default=1)
        together = batches_at_once(most, operation.memory)
        workers = runner.workers or max(1, machines.total())
        if together < most:
            workers = min(workers, together * len(machines))
        together = min(workers, together)
        idle = _saying(alive, f"{address or runner.kind} has no worker left: waiting for one", say)
        yield BatchExecutor(tasks, workers, together, elsewhere=True, idle=idle)


def _saying(
    alive: Callable[[], int], line: str, say: Callable[[str], object]
) -> Callable[[], None]:
    """Make a function that says a line whenever the last worker is gone."""
    had_some = True

    def idle() -> None:
        nonlocal had_some
        had_some, before = alive() > 0, had_some
        if before and not had_some:
            say(line)

    return idle


_Opened = tuple[TaskRunner[Any], Counter[str], Callable[..., Any], Callable[[], int]]
"""A task runner, its number of batches at once on each machine, a function that calls functions
there, and a function that counts the workers.
"""


@contextmanager
def _dask(address: str | None, workers: int) -> Iterator[_Opened]:
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")  # errors are raised, too
    from prefect_dask import DaskTaskRunner

    here = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "dashboard_address": None,
        "env": {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"},
    }
    runner = (
        DaskTaskRunner(address=address, client_kwargs={"timeout": CONNECT_SECONDS})
        if address
        else DaskTaskRunner(cluster_kwargs=here)
    )
    with runner:
        with _connecting(address):
            client = runner.client
        machines = Counter[str]()
        for worker, threads in client.nthreads().items():
            machines[urlsplit(worker).hostname or ""] += threads
        yield runner, machines, client.run, lambda: len(client.nthreads())


@contextmanager
def _ray(address: str | None, workers: int) -> Iterator[_Opened]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read by the import
    import ray
    from prefect_ray import RayTaskRunner
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    here = {} if address else {"num_cpus": workers, "include_dashboard": False}
    runner = partial(RayTaskRunner[Any], address=address, init_kwargs={**quiet, **here})
    handler = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        # Ray prints that a worker has died; stdout is for the result.
        stack.enter_context(redirect_stdout(sys.stderr))
        with _connecting(address):
            connected = _connected_to_ray(runner, stack, address)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has replaced it

        def processors() -> Counter[str]:
            nodes: list[Mapping[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
            return Counter({each["NodeID"]: int(each["Resources"].get("CPU", 0)) for each in nodes})

        machines = processors()

        def on_every_node(function: Callable[..., Any], *arguments: Any) -> None:
            call = ray.remote(num_cpus=0)(function)
            each = [call.options(scheduling_strategy=OnNode(node, soft=False)) for node in machines]
            ray.get([there.remote(*arguments) for there in each])

        yield connected, machines, on_every_node, lambda: processors().total()


def _connected_to_ray(
    runner: Callable[[], TaskRunner[Any]], stack: ExitStack, address: str | None
) -> TaskRunner[Any]:
    """Open a task runner, also if the process that Ray forks for a client dies, as under load."""
    attempts = RAY_ATTEMPTS if (address or "").startswith("ray://") else 1
    for _ in range(attempts - 1):
        with suppress(ConnectionAbortedError):
            return stack.enter_context(runner())
    return stack.enter_context(runner())


@contextmanager
def _connecting(address: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = str(error).strip()
        if "Traceback" in reason:  # from Ray's server
            reason = reason.rpartition("\n")[2]
        message = f"{'cannot connect' if address else 'no workers start'}: {reason}"
        raise runner_refusal(address, message) from error


def _check_workers(address: str, storage: Location, on_every_worker: Callable[..., Any]) -> None:
    try:
        on_every_worker(see_object, storage, *first_object(storage))
    except Exception as error:
        hint = (
            "every worker needs Larder with the same packages, and the storage under the same URL: "
            "a bucket, or a path that all machines share"
        )
        raise runner_refusal(address, f"a worker cannot read the storage: {error}", hint) from error
