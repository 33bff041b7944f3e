"""A batch can be sent to another process: what it gets is small, and needs nothing of this one."""

import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from pipeline_lab import directory_lab, images

from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import prepare
from larder.progress import NullProgress, StageTimes
from larder.verify.verifying import VerifySettings, verify

MOST_BYTES = 64 * 1024


def _run(sent: bytes) -> Any:
    step, job, batch = pickle.loads(sent)
    return step(job, batch, progress=NullProgress(), concurrent_batches=1)


class ElsewhereRunner(InlineRunner):
    """Runs every batch in a process that was not forked from this one."""

    def __init__(self) -> None:
        super().__init__(2, StageTimes())
        self.sizes: dict[str, int] = {}

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        sent = [pickle.dumps((step, job, batch)) for batch in batches]
        self.sizes[step.__name__] = max(map(len, sent))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(_run, sent))


@pytest.mark.push
def test_every_batch_runs_in_another_process(tmp_path):
    lab = directory_lab(tmp_path, images("abc", 20), mirror=True)
    settings, runner = lab.settings(), ElsewhereRunner()
    document = prepare(settings, runner)
    assert document["copied"]["count"] == document["objects"]["count"]
    lab.check()
    verified = verify(VerifySettings(settings), runner)
    assert verified["found"] == 0
    assert set(runner.sizes) == {"copy_objects", "shard_batch", "cache_split", "verify_batch"}
    assert max(runner.sizes.values()) < MOST_BYTES, runner.sizes
