"""The limits ``larder-DATASET`` and ``larder-bucket:BUCKET``, on servers that have them.

One run at a time prepares a dataset. Two would end well without the limit, but do the work twice;
with it the second run waits, and then finds the work done. So many runs as the limit of a bucket
has slots use the bucket as their storage at a time; one that waits for its dataset has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from prefect import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from larder.config.urls import parse_url
from tasks.progress import current_progress

LEASE_SECONDS = 60.0
"""When the server takes the slot back from a run that does not renew it: Prefect's minimum."""

_POLL_SECONDS = 2.0


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
        yield


def _exists(name: str) -> bool:
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            return False
    return True


def _acquire(stack: ExitStack, name: str, say: Callable[[str], None]) -> None:
    waiting = False
    while True:
        # Not one long wait, which nothing could stop.
        slot = concurrency(name, timeout_seconds=_POLL_SECONDS, lease_duration=LEASE_SECONDS)
        try:
            stack.enter_context(slot)
        except TimeoutError:
            if not waiting:
                say(f"waiting for the limit {name}: another run holds it")
            waiting = True
            current_progress()  # raises once the run is asked to stop
        else:
            return
