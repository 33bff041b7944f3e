from types import SimpleNamespace

import pytest

from larder.config.models.locations import Location
from larder.copy.copy_job import CopyBatch, copy_objects
from larder.jobs.crew import Crew, DividedStep


@pytest.mark.parametrize(
    ("cores", "count", "seconds", "locked", "processes"),
    [
        (1, 2, 0.7, 0.0, 2),
        (1, 2, 0.5, 0.0, 1),
        (2, 2, 100.0, 50.0, 1),
        (2, 2, 100.0, 99.0, 2),
        (2, 16, 0.4, 0.1, 16),
        (2, 16, 0.3, 0.1, 1),
    ],
)
def test_processes_are_used_beyond_the_cores_that_threads_keep_busy(
    cores, count, seconds, locked, processes
):
    """Two processes copied no faster than one on two cores, and took more CPU time; eight
    large objects were copied by one process on sixteen cores, where one is slow."""

    @DividedStep(lambda *_: [], list, lambda job: (seconds, locked), "stage", cores)
    def step() -> None: ...

    batches = [type("Batch", (), {"rows": 1, "bytes": 0})]
    assert Crew.of(step, None, batches, count)._count == processes


@pytest.mark.parametrize(("count", "processes"), [(2, 1), (4, 4)])
def test_copies_on_two_cores_stay_in_one_process(count, processes):
    route = SimpleNamespace(source=Location(url="s3://bucket/a"), storage=Location(url="/b"))
    batches = [CopyBatch(0, 20_000, 2_200_000_000)]
    job = SimpleNamespace(route=route)
    assert Crew.of(copy_objects, job, batches, count)._count == processes
