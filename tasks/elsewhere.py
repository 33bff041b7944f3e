"""Batches in the processes of Dask or Ray, which may be on other machines.

A batch returns its progress with its result, and does not report it before. Batches learn from
Prefect's server that their flow run has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prefect.context import FlowRunContext

from larder.config.models.locations import Location
from larder.errors import NotFoundError
from larder.progress import StageTimes
from larder.store import open_location
from tasks.run_progress import listening, run_ended, stoppable, stopped_for


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """The result of a batch, and the work of each stage, as in `StageTimes.stages`."""

    result: Any
    stages: Mapping[str, Mapping[str, Any]]


@contextmanager
def reported_later() -> Iterator[StageTimes]:
    """Collect the progress of a ``with`` block, and stop it once its flow run has ended."""
    context = FlowRunContext.get()
    assert context is not None, "a batch belongs to a flow run"
    assert context.flow_run is not None, "it has begun"
    times = StageTimes()
    with (
        listening(times),
        stoppable() as stop,
        stopped_for(run_ended(context.flow_run.id), stop),
    ):
        yield times


def first_object(storage: Location) -> tuple[str, int]:
    """Return the key and the size of an object in a storage that is not empty."""
    first = next(page[0] for page in open_location(storage).list() if page)
    return first.key, first.size_bytes


def see_object(storage: Location, key: str, size_bytes: int) -> None:
    """Raise `NotFoundError` if this machine sees no object of this key and size in a storage."""
    if open_location(storage).head(key).size_bytes != size_bytes:
        raise NotFoundError("object.missing", "another object has its key", where=key)
