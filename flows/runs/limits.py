"""The limits ``larder-DATASET`` and ``larder-bucket:BUCKET``, on servers that have them.

The limit of a team is ``larder-DATASET@TEAM``. One run at a time prepares a dataset: a second run
waits, and then finds the work done. At most as many runs write to a bucket at once as its limit has
slots; a run that waits for its dataset has no slot.

A run with a slot has the limit's name as a tag, so that a waiting run can name the run with the
slot. The run's label of that name is the ID of the slot's lease, and is empty once the lease is
given back. So waiting runs and ``flows.serve`` release the slot of a killed run. If the label is
missing, or the server has forgotten the lease in a restart, a waiting run frees slots that no run
has had for `ABANDONED_SECONDS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from httpx import HTTPError, HTTPStatusError  # Prefect's
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, StateType
from prefect.concurrency._leases import maintain_concurrency_lease
from prefect.exceptions import ObjectNotFound

from flows.runs.run_page import change_tags
from larder.config.urls import parse_url
from larder.progress import WAIT
from tasks.artifacts import team
from tasks.run_progress import current_flow_run, current_progress

LEASE_SECONDS = 60.0
"""Time after which the server takes back a slot whose lease is not renewed: Prefect's minimum."""

ABANDONED_SECONDS = LEASE_SECONDS + 15.0
"""Time after which a taken slot without a run is freed: the server checks leases every 15 s."""

_RECENTLY_SECONDS = 300.0
"""The server has taken back the leases of runs that ended longer ago."""

_PREFIX = "larder-"
_POLL_SECONDS = 2.0
_UNFINISHED = (StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING)
_LOCKED = 423


def limit_name(dataset: str, team: str) -> str:
    return f"{_PREFIX}{dataset}@{team}" if team else f"{_PREFIX}{dataset}"


def dataset_limit(dataset: str, say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Hold the slot of a dataset within a ``with`` block, if the server has its limit."""
    return _slot(limit_name(dataset, team()), say)


def bucket_limit(storage: str, say: Callable[[str], None]) -> AbstractContextManager[None]:
    url = parse_url(storage)
    return nullcontext() if url.is_directory else _slot(f"{_PREFIX}bucket:{url.bucket}", say)


def free_slots_of_killed_runs(client: SyncPrefectClient) -> None:
    """Give back the leases of runs that have ended without giving them back."""
    for run in client.read_flow_runs(flow_run_filter=ended_recently(*TERMINAL_STATES)):
        limits = filter(lambda label: label.startswith(_PREFIX), run.labels)
        if leases := {limit: lease for limit in limits if (lease := run.labels[limit])}:
            for limit, lease in leases.items():
                _give_back(client, run.id, limit, UUID(str(lease)))
            client.update_flow_run(run.id, tags=set(run.tags) - leases.keys())


def ended_recently(*states: StateType) -> FlowRunFilter:
    """Choose runs that have come to one of some final states within five minutes."""
    recently = datetime.now(UTC) - timedelta(seconds=_RECENTLY_SECONDS)
    question = {"end_time": {"after_": recently}, "state": {"type": {"any_": states}}}
    return FlowRunFilter.model_validate(question)


def _give_back(client: SyncPrefectClient, run: UUID, limit: str, lease: UUID) -> None:
    client.release_concurrency_slots_with_lease(lease)
    client.update_flow_run_labels(run, {limit: ""})


@contextmanager
def _slot(name: str, say: Callable[[str], None]) -> Iterator[None]:
    if not _exists(name):
        yield
        return
    lease = _acquire(name, say)
    try:
        with maintain_concurrency_lease(lease, LEASE_SECONDS):
            change_tags(add={name})
            yield
    finally:
        # If the server does not answer, a run that waits for the slot gives it back.
        with suppress(HTTPError), get_client(sync_client=True) as client:
            _give_back(client, current_flow_run().id, name, lease)
            change_tags(remove={name})


def _exists(name: str) -> bool:
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            return False
    return True


def _acquire(name: str, say: Callable[[str], None]) -> UUID:
    waiting, said, all_had = False, False, time.monotonic()
    while True:
        progress = current_progress()  # raises once the run is asked to stop
        if lease := _lease(name):
            if waiting:
                progress.finish(WAIT)
            return lease
        with get_client(sync_client=True) as client:
            runs = _runs_with(client, name)
            taken = client.read_global_concurrency_limit_by_name(name).active_slots
            if not waiting:
                progress.start(WAIT)
            waiting = True
            if taken <= len(runs):
                all_had = time.monotonic()
            if runs and not said:  # a run may take seconds to tag itself once it has a slot
                say(f"waiting for the limit {name}: {_described(name, runs)}")
                said = True
            if time.monotonic() - all_had >= ABANDONED_SECONDS:
                say(f"no run has the slot of the limit {name} any more: freeing it")
                free = GlobalConcurrencyLimitUpdate(active_slots=len(runs))
                client.update_global_concurrency_limit(name, free)
                continue
            if taken > len(runs):
                free_slots_of_killed_runs(client)
        time.sleep(_POLL_SECONDS)


def _lease(name: str) -> UUID | None:
    """Take a slot and label the run with the lease at once; None if all slots are taken."""
    with get_client(sync_client=True) as client:
        try:
            answer = client.increment_concurrency_slots_with_lease(
                [name], 1, "concurrency", LEASE_SECONDS
            )
        except HTTPStatusError as error:
            if error.response.status_code == _LOCKED:
                return None
            raise
        lease = UUID(answer.json()["lease_id"])
        with suppress(HTTPError):
            client.update_flow_run_labels(current_flow_run().id, {name: str(lease)})
        return lease


def _runs_with(client: SyncPrefectClient, limit: str) -> list[FlowRun]:
    question = {"tags": {"all_": [limit]}, "state": {"type": {"any_": _UNFINISHED}}}
    return client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(question))


def _described(limit: str, runs: list[FlowRun]) -> str:
    """Name the runs that have a limit, with advice for the case that they are gone."""
    names = ", ".join(
        f"{run.name} ({run.id}), running since {run.start_time!s:.16} UTC" for run in runs
    )
    command = f"prefect global-concurrency-limit update {limit} --active-slots 0"
    return f"{names}, has it; if that is no longer alive, set its state, or run `{command}`"
