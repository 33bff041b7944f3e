"""The limits ``larder-DATASET`` and ``larder-bucket:BUCKET``, on servers that have them.

One run at a time prepares a dataset. Two would end well without the limit, but do the work twice;
with it the second run waits, and then finds the work done. So many runs as the limit of a bucket
has slots use the bucket as their storage at a time; one that waits for its dataset has none.

The server takes a slot back from a run that was killed, but may forget to if it was restarted. A
run that has a slot has the limit's name as a tag: so a run that waits can say which one that is,
and frees slots that none has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from flows.runs.page import tagged
from larder.config.urls import parse_url
from larder.progress import WAIT
from tasks.progress import current_progress

LEASE_SECONDS = 60.0
"""When the server takes the slot back from a run that does not renew it: Prefect's minimum."""

ABANDONED_SECONDS = LEASE_SECONDS + 15.0
"""How long no run may have a slot that is taken: the server looks every 15 s for what ran out."""

_POLL_SECONDS = 2.0
_UNFINISHED = (StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING)
_LOCKED = 423


def limit_name(dataset: str) -> str:
    return f"larder-{dataset}"


@contextmanager
def dataset_limit(dataset: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the slot of a dataset within a ``with`` block, if the server has its limit.

    FatalError: ``run.interrupted``: the run was asked to stop while it waited.
    """
    with _slot(limit_name(dataset), say):
        yield


@contextmanager
def bucket_limit(storage: str, say: Callable[[str], None]) -> Iterator[None]:
    """The same with a slot of the bucket of a storage, by its URL."""
    url = parse_url(storage)
    with nullcontext() if url.is_directory else _slot(f"larder-bucket:{url.bucket}", say):
        yield


@contextmanager
def _slot(name: str, say: Callable[[str], None]) -> Iterator[None]:
    with ExitStack() as stack:
        if _exists(name):
            _acquire(stack, name, say)
            stack.enter_context(tagged(name))
        yield


def _exists(name: str) -> bool:
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            return False
    return True


def _acquire(stack: ExitStack, name: str, say: Callable[[str], None]) -> None:
    waiting, all_had = False, time.monotonic()
    while True:
        current_progress()  # raises once the run is asked to stop
        # One question at a time, for whose answer we wait: the slot may be ours by then.
        slot = concurrency(name, max_retries=0, lease_duration=LEASE_SECONDS)
        try:
            stack.enter_context(slot)
        except ConcurrencySlotAcquisitionError as error:
            if getattr(getattr(error.__cause__, "response", None), "status_code", 0) != _LOCKED:
                raise
        else:
            if waiting:
                current_progress().finish(WAIT)
            return
        with get_client(sync_client=True) as client:
            runs = _runs_with(client, name)
            taken = client.read_global_concurrency_limit_by_name(name).active_slots
            if not waiting:
                say(f"waiting for the limit {name}: {_described(name, runs)}")
                current_progress().start(WAIT)
            waiting = True
            if taken <= len(runs):
                all_had = time.monotonic()
            elif time.monotonic() - all_had >= ABANDONED_SECONDS:
                say(f"no run has the slot of the limit {name} any more: freeing it")
                free = GlobalConcurrencyLimitUpdate(active_slots=len(runs))
                client.update_global_concurrency_limit(name, free)
                continue
        time.sleep(_POLL_SECONDS)


def _runs_with(client: SyncPrefectClient, limit: str) -> list[FlowRun]:
    """The runs that have a slot."""
    question = {"tags": {"all_": [limit]}, "state": {"type": {"any_": _UNFINISHED}}}
    return client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(question))


def _described(limit: str, runs: list[FlowRun]) -> str:
    """Who has a limit, and what to do if that is wrong."""
    if not runs:
        return f"no run is known to have it; after {ABANDONED_SECONDS:.0f} s it is freed"
    names = ", ".join(
        f"{run.name} ({run.id}), running since {run.start_time!s:.16} UTC" for run in runs
    )
    command = f"prefect global-concurrency-limit update {limit} --active-slots 0"
    return f"{names}, has it; if that is no longer alive, set its state, or run `{command}`"


def _is_of_another_service(record: logging.LogRecord) -> bool:
    """Not that which asks for slots: it logs a slot that is taken as if that were an error."""
    return "ConcurrencySlot" not in str(record.args)


logging.getLogger("prefect._internal.concurrency").addFilter(_is_of_another_service)
