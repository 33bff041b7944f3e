"""A batch that is retried, as by Prefect: what an earlier attempt finished is not done again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images

from larder.disk import scratch
from larder.errors import RetryableError
from larder.pipeline.planning.checks import checked_plan
from larder.pipeline.planning.source import inspect_source
from larder.pipeline.prepare import begin
from larder.progress import NullProgress
from larder.segments.job import Job
from larder.segments.shard import shard_batch, shard_batches
from larder.store.base import Store
from larder.versions import layout
from tests.support.runs import between
from tests.support.stores import FaultyStore, Recorder, unavailable

pytestmark = pytest.mark.exhaustive

OBJECTS = images("abc", 20)
FIELDS: dict[str, Any] = {
    "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
    "cache": None,
    "mirror": True,
    "cluster": {"runner": {"workers": 1}, "copy": {"concurrency": 2}},
}
QUIET = NullProgress()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path, OBJECTS, **FIELDS)


class Tries(Recorder):
    """Stores that record calls, and of which one call fails in the first attempt."""

    def __init__(self, method: str, key: str) -> None:
        super().__init__()
        self.fault: tuple[str, str] | None = (method, key)

    def __call__(self, store: Store) -> Store:
        faulty = FaultyStore(store)
        if self.fault:
            method, key = self.fault
            faulty.add(method, unavailable(), key=key)
        return super().__call__(faulty)

    def again(self) -> None:
        self.fault = None
        self.stores.clear()

    def with_part(self, method: str, part: str) -> list[str]:
        return sorted(key for key in self.keys(method) if part in key)


def begun(lab: Lab) -> Job:
    asked = lab.settings()
    with scratch() as folder:
        found = inspect_source(asked, folder, None, progress=QUIET)
        return begin(checked_plan(found, folder, progress=QUIET))


def fail(step: Callable[[], Any]) -> None:
    with pytest.raises(RetryableError):
        step()


def test_a_retried_batch_of_shards_makes_only_the_rest(tmp_path):
    expected = directory_lab(tmp_path / "1", OBJECTS, **{**FIELDS, "mirror": False}).prepare()
    lab = directory_lab(tmp_path / "2", OBJECTS, **{**FIELDS, "mirror": False})
    job = begun(lab)
    (batch,), _ = shard_batches(job, QUIET)
    keys = [layout.shard_key(job.segment, shard.split, shard.name) for shard in batch.shards]
    tries = Tries("writer", keys[5])
    with between(tries):
        fail(lambda: shard_batch(job, batch, progress=QUIET))
    with lab.opened_root() as root:
        root.put(keys[1], b"\0" * root.head(keys[1]).size_bytes)
    tries.again()
    with between(tries):
        report = shard_batch(job, batch, progress=QUIET)
    assert tries.with_part("commit", ".tar") == [keys[1], *keys[5:]]
    assert report.done.count == len(keys)
    again = lab.prepare()
    assert again["shards"]["reused"] == len(keys)
    assert again["digest"] == expected["digest"]
    lab.check()
