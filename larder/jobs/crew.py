"""The crew: processes of this machine that share the work of a run, by default one per core.

Because of the interpreter lock, threads keep one or two cores busy with objects and samples. So if
processes save time, the batches of a step are divided into units: consecutive objects or shards,
with receipts of their own. Each unit runs in a process of the crew, which all batches share. This
process hands out the units and merges their results. A unit whose process was killed is repeated
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar
from urllib.parse import urlsplit

from larder.config.models.locations import Location
from larder.jobs.processes import ProcessPool
from larder.jobs.results import stops_others
from larder.progress import CancellableProgress, Progress
from larder.store.interrupt import stopping_waits

UNIT_BYTES = 64_000_000
"""Maximum size of a unit, unless it is a single object or shard."""

_SCHEMES = ("", "file", "gs", "s3")
_START_SECONDS = 0.3
_BYTE_SECONDS = 0.5e-9
_LEAST_UNIT_BYTES = 16_000_000
_UNITS_EACH = 4

Step = TypeVar("Step", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DividedStep:
    """A decorator of a step, whose batches are divided among several processes.

    Attributes:
        units: Takes a job, a batch and the number of processes. Returns smaller batches, or none if
            this process has to do the batch.
        merge: Merges the results of the smaller batches.
        row_seconds: Takes a job. Returns about how many seconds a process is busy with an object or
            sample, besides moving its bytes, and the part with the interpreter lock.
        stage: The stage whose progress the step reports.
        cores: Number of cores that the threads of one process keep busy, if the interpreter lock
            lets them; with no more, one process does the work.

    Batches have ``rows``, ``bytes`` and a ``name``.
    """

    units: Callable[[Any, Any, int], Sequence[Any]]
    merge: Callable[[Sequence[Any]], Any]
    row_seconds: Callable[[Any], tuple[float, float]]
    stage: str
    cores: int = 1

    def __call__(self, step: Step) -> Step:
        _divided[step] = self
        return step


_divided: dict[Callable[..., Any], DividedStep] = {}


def saves_time(seconds: float, count: float) -> bool:
    """Whether ``count`` processes save more than their start time, of the ``seconds`` of one."""
    return seconds * (1 - 1 / count) > _START_SECONDS


def is_local(*places: Location) -> bool:
    return all(urlsplit(place.url).scheme in ("", "file") for place in places)


def reachable(*places: Location) -> bool:
    """Whether other processes reach these locations: no Prefect blocks, no stores in memory."""
    return all(
        place.access.block is None and urlsplit(place.url).scheme in _SCHEMES for place in places
    )


def unit_bytes(total_bytes: int, count: int) -> int:
    """Return the size of units that keeps ``count`` processes busy to the end."""
    return min(UNIT_BYTES, max(_LEAST_UNIT_BYTES, total_bytes // (count * _UNITS_EACH)))


class Crew:
    """Up to ``count`` processes, and the threads that wait for them."""

    @staticmethod
    def of(step: Callable[..., Any], job: Any, batches: Sequence[Any], count: int) -> Crew:
        """Return a crew for all batches of a step, of one process if more save no time."""
        division = _divided.get(step)
        if division is None:
            return Crew(1)
        rows = sum(batch.rows for batch in batches)
        busy, locked = (rows * each for each in division.row_seconds(job))
        busy += _BYTE_SECONDS * sum(batch.bytes for batch in batches)
        cores = min(division.cores, busy / locked) if locked else division.cores
        # The seconds are not divided by the cores: one process is slower on a machine with many.
        return Crew(count if saves_time(busy, count / cores) else 1)

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="unit")
        self._processes = ProcessPool(count)

    def run(
        self, step: Callable[..., Any], *arguments: Any, progress: Progress, **named: Any
    ) -> Any:
        """Run a step, in several processes if its batch has units, and return the result.

        Raises ``run.failed`` if the process of a unit was killed twice.
        """
        division = _divided.get(step) if self._count > 1 else None
        units = division.units(arguments[0], arguments[1], self._count) if division else ()
        if division is None or not units:
            with stopping_waits(progress):
                return step(*arguments, progress=progress, **named)

        def call(unit: Any, progress: Progress) -> Any:
            return self._processes.call(
                step,
                arguments[0],
                unit,
                unit=unit.name,
                progress=progress,
                stage=division.stage,
                concurrent_batches=self._count,
            )

        return division.merge(map_stopping(self._threads, call, units, progress))

    def close(self) -> None:
        """End the processes; no batch may be in progress."""
        self._threads.shutdown()
        self._processes.close()


def map_stopping(
    pool: Executor, call: Callable[[Any, Progress], Any], batches: Sequence[Any], progress: Progress
) -> list[Any]:
    """Return the results of a call for each batch, in order.

    The first error, or an interrupt, cancels batches that have not started; the others stop after
    their current objects, and are waited for. If too much failed in a batch, no further batch is
    started, and batches that were not started have None as result.
    """
    stop, enough = Event(), Event()
    errors: list[BaseException] = []
    results: list[Any] = [None] * len(batches)

    def one(place: int) -> None:
        if enough.is_set():
            return
        try:
            results[place] = call(batches[place], CancellableProgress(progress, stop))
        except BaseException as error:
            errors.append(error)
            stop.set()  # before this thread takes the next batch
            raise
        if stops_others(results[place]):
            enough.set()

    futures = [pool.submit(one, place) for place in range(len(batches))]
    try:
        for future in as_completed(futures):
            if future.exception():
                raise errors[0]
    except BaseException:
        stop.set()
        for future in futures:
            future.cancel()
        wait(futures)
        raise
    return results
