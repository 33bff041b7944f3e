import pytest

from larder.jobs.crew import Crew, divided


@pytest.mark.parametrize(("cores", "count", "processes"), [(1, 2, 2), (2, 2, 1), (2, 8, 8)])
def test_processes_are_used_beyond_the_cores_that_threads_keep_busy(cores, count, processes):
    """Two processes copied no faster than one on two cores, and took a tenth more CPU time."""

    @divided(lambda job, batch, count: [], list, lambda job: 1.0, "stage", cores)
    def step() -> None: ...

    batches = [type("Batch", (), {"rows": 1_000, "bytes": 0})]
    assert Crew.of(step, None, batches, count)._count == processes
