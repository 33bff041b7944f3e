"""A batch that is retried, as by Prefect: what an earlier attempt finished is not done again."""

from typing import Any

import pytest
from pipeline_lab import directory_lab, images

from larder.disk import scratch
from larder.errors import RetryableError
from larder.pipeline.planning.checks import checked_plan
from larder.pipeline.planning.source import inspect_source
from larder.pipeline.prepare import begin
from larder.progress import NullProgress
from larder.segments.shard import shard_batch, shard_batches
from larder.store.base import Store
from larder.versions import layout
from tests.support.runs import between
from tests.support.stores import FaultyStore, Recorder, unavailable

pytestmark = pytest.mark.push

OBJECTS = images("abc", 20)
FIELDS: dict[str, Any] = {
    "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
    "cache": None,
    "mirror": False,
    "cluster": {"runner": {"workers": 1}, "copy": {"concurrency": 2}},
}
QUIET = NullProgress()


def test_a_retried_batch_of_shards_makes_only_the_rest(tmp_path):
    expected = directory_lab(tmp_path / "1", OBJECTS, **FIELDS).prepare()
    lab = directory_lab(tmp_path / "2", OBJECTS, **FIELDS)
    with scratch() as folder:
        inspected = inspect_source(lab.settings(), folder, None, progress=QUIET)
        job = begin(checked_plan(inspected, folder, progress=QUIET))
    (batch,), _ = shard_batches(job, QUIET)
    keys = [layout.shard_key(job.segment, shard.split, shard.name) for shard in batch.shards]

    def failing(store: Store) -> Store:
        faulty = FaultyStore(store)
        faulty.add("writer", unavailable(), key=keys[5])
        return faulty

    with between(failing), pytest.raises(RetryableError):
        shard_batch(job, batch, progress=QUIET)
    with lab.opened_root() as root:
        root.put(keys[1], b"\0" * root.head(keys[1]).size_bytes)
    with between(recorder := Recorder()):
        report = shard_batch(job, batch, progress=QUIET)
    made = sorted(key for key in recorder.keys("commit") if ".tar" in key)
    assert made == [keys[1], *keys[5:]]
    assert report.done.count == len(keys)
    again = lab.prepare()
    assert again["shards"]["reused"] == len(keys)
    assert again["digest"] == expected["digest"]
    lab.check()
