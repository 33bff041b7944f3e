"""The worker of a work pool, and the runs that it has left without an end."""

from __future__ import annotations

import os
import socket
from collections.abc import Set
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

from httpx import HTTPError  # Prefect's
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, WorkerFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType, Worker
from prefect.exceptions import ObjectAlreadyExists, PrefectException
from prefect.states import Crashed

from flows.runs.limits import ended_recently
from flows.runs.run_page import AGAIN
from flows.runs.service_processes import running, running_groups
from larder.errors import ConfigError

PENDING_SECONDS = 300.0
"""Time that a worker may take to start the process of a run."""

_ENDED = "the process of this run ended without a result"
_PAGE = 200


def make_pool(name: str) -> None:
    """Make a work pool of processes, unless a pool has that name."""
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def announce_worker(pool: str) -> None:
    """Announce this process as the worker of a work pool; refuse a pool with another worker.

    Runs of the other worker would be ended as if their worker were gone. Prefect calls a killed
    worker online for a while; a worker of this machine that is gone does not count.
    """
    with get_client(sync_client=True) as client:
        for worker in online_workers(client, pool):
            host, _, pid = worker.name.rpartition(":")
            here = host == socket.gethostname() and pid.isdigit()
            if not here or (int(pid) != os.getpid() and int(pid) in running()):
                message = f"the work pool {pool} has a worker: {worker.name}"
                hint = "stop it, or choose another pool; a killed worker is online for two minutes"
                raise ConfigError("config.work_pool", message, where="--pool", hint=hint)
        client.send_worker_heartbeat(pool, worker_name())  # before its worker, which starts slowly


def withdraw_worker(pool: str) -> None:
    """Withdraw this process's worker, so that another machine may start a worker at once."""
    with suppress(HTTPError, PrefectException), get_client(sync_client=True) as client:
        path = {"work_pool_name": pool, "name": worker_name()}
        client.request("DELETE", "/work_pools/{work_pool_name}/workers/{name}", path_params=path)


def online_workers(client: SyncPrefectClient, pool: str) -> list[Worker]:
    online = WorkerFilter.model_validate({"status": {"any_": ["ONLINE"]}})
    return client.read_workers_for_work_pool(pool, worker_filter=online)


def crash_abandoned_runs(pool: str, reason: str, *states: StateType) -> None:
    """Set the runs of a work pool that its only worker has left in some states to Crashed."""
    with get_client(sync_client=True) as client:
        while runs := _runs(client, pool, _in_states(*states)):
            for run in runs:
                _crash(client, run.id, reason)


def crash_dead_runs(client: SyncPrefectClient, pool: str, dead_before: Set[UUID]) -> set[UUID]:
    """Set unfinished runs of a work pool to Crashed if their processes on this machine have ended.

    To leave time for the worker, which usually does so, only runs are set that the previous call
    returned, as ``dead_before``. Returns the runs that are dead now.
    """
    unfinished = StateType.PENDING, StateType.RUNNING, StateType.CANCELLING
    groups = running_groups()
    runs = _runs(client, pool, _in_states(*unfinished))
    dead = {run.id for run in runs if is_dead(run, groups)}
    for run in dead & dead_before:
        _crash(client, run, _ENDED)
    return dead


def explain_crashes(client: SyncPrefectClient, pool: str) -> None:
    """Say what to do in the states of runs that Prefect has set to Crashed by itself."""
    for run in _runs(client, pool, ended_recently(StateType.CRASHED)):
        message = (run.state and run.state.message) or ""
        # Prefect sets such a state only by force, which would end a run that was started again.
        if AGAIN not in message and client.read_flow_run(run.id).state_id == run.state_id:
            _crash(client, run.id, f"{_ENDED} ({message})")


def _crash(client: SyncPrefectClient, run: UUID, reason: str) -> None:
    client.set_flow_run_state(run, Crashed(message=f"{reason}; {AGAIN}"), force=True)


def is_dead(run: FlowRun, running: Set[int]) -> bool:
    """Whether an unfinished run has no process; a pending run has some minutes to get a process."""
    pid = run.infrastructure_pid or ""
    if run.state is not None and run.state.is_pending():
        pending = datetime.now(UTC) - run.state.timestamp
        if pending.total_seconds() < PENDING_SECONDS:  # the process may belong to an earlier try
            return False
        return not pid.isdigit() or int(pid) not in running
    return pid.isdigit() and int(pid) not in running


def _runs(client: SyncPrefectClient, pool: str, chosen: FlowRunFilter) -> list[FlowRun]:
    in_pool = WorkPoolFilter.model_validate({"name": {"any_": [pool]}})
    return client.read_flow_runs(flow_run_filter=chosen, work_pool_filter=in_pool, limit=_PAGE)


def _in_states(*states: StateType) -> FlowRunFilter:
    return FlowRunFilter.model_validate({"state": {"type": {"any_": states}}})
