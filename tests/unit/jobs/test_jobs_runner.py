import threading
from typing import cast

import pytest

from larder.config.models.cluster import Cluster
from larder.config.models.copy_config import RunnerConfig
from larder.errors import FatalError
from larder.jobs.step_runner import InlineRunner, runner_batches
from larder.machine import usable_cores
from larder.pipeline.preparing import prepare
from larder.progress import Progress, StageTimes
from larder.segments.segment_job import Job
from tests.support.errors import larder_error
from tests.support.runs import run_settings

JOB = cast(Job, None)
"""The runner hands it on, and looks at nothing in it."""


def test_results_come_in_the_order_of_the_batches():
    def step(
        job: Job, batch: int, *, progress: Progress, concurrent_batches: int
    ) -> tuple[int, int]:
        return batch, concurrent_batches

    assert InlineRunner(3, StageTimes()).map(step, JOB, range(5)) == [(n, 3) for n in range(5)]
    assert InlineRunner(3, StageTimes()).map(step, JOB, []) == []


@pytest.mark.parametrize("error", [FatalError("run.internal", "x"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_or_an_interrupt_stops_the_other_batches(error, failing):
    begun, ran, ended = threading.Barrier(2), [], []

    def step(job: Job, batch: int, *, progress: Progress, concurrent_batches: int) -> None:
        ran.append(batch)
        begun.wait(60)
        if batch == failing:
            raise error
        try:
            while True:
                progress.advance("copy", objects=1)
        except FatalError as stopped:
            ended.append(stopped.code)
            raise

    with pytest.raises(type(error)) as caught:
        InlineRunner(2, StageTimes()).map(step, JOB, range(9))
    assert caught.value is error
    assert sorted(ran) == [0, 1]
    assert ended == ["run.interrupted"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"runner": {"workers": 3}, "copy": {"memory_bytes": "1 GiB"}}, 3),
        ({"runner": {"workers": 3}, "copy": {"memory_bytes": "128 MiB"}}, 2),
        ({"runner": {"workers": 3}, "copy": {"memory_bytes": "16 MiB"}}, 1),
        ({"copy": {"memory_bytes": "1 TiB"}}, usable_cores()),
    ],
)
def test_memory_bounds_the_batches_at_once(fields, expected):
    cluster = Cluster.model_validate({"name": "c", "storage": {"url": "/x"}, **fields})
    assert runner_batches(cluster.runner, cluster.copy_) == expected


def test_an_address_needs_a_kind():
    with pytest.raises(ValueError, match="address"):
        RunnerConfig(address="tcp://10.0.0.5:8786")


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_batches_of_a_cluster_need_a_flow_run(kind, tmp_path):
    settings = run_settings(
        tmp_path, tmp_path / "storage", tmp_path, cluster={"runner": {"kind": kind}}
    )
    with larder_error("config.runner"):
        prepare(settings)
