"""Shards of several files, and shards that are counted in their names, in complete runs."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pipeline_lab import directory_lab, flip, png
from required import at_night

from tests.support.stores import KeyStop


@pytest.mark.push
@pytest.mark.parametrize("ext", ["rec", "idx", "lst"])
@pytest.mark.parametrize("lost", [False, *at_night(True)])
def test_a_shard_with_one_altered_file_is_made_again(tmp_path, ext, lost):
    objects = {f"{'ab'[number % 2]}/{number:02}.bin": bytes([number]) * 300 for number in range(12)}
    shards = {"format": "recordio", "bytes": 1_000}
    lab = directory_lab(tmp_path, objects, shards=shards, cache=None, validate="none")
    expected = lab.prepare()["digest"]
    shutil.rmtree(str(lab.storage))
    assert lab.stopped(KeyStop("segment.json")) is None
    path = lab.file(f"d-train-000001.{ext}")
    if lost:
        path.unlink()
    else:
        flip(path)
    document, recorder = lab.recorded()
    written = [key.rpartition("/")[2] for key in recorder.keys("commit")]
    assert document["digest"] == expected
    assert Counter(written) == Counter(f"d-train-000001.{each}" for each in ("rec", "idx", "lst"))
    assert document["shards"]["reused"] == document["shards"]["count"] - 1
    lab.check()


def test_a_shard_without_samples_leaves_no_file(tmp_path):
    """The names of the others count it: they were given before anything was read."""
    objects = {f"a/{n}.png": b"no image" * 90 if n == 1 else png(n) for n in range(3)}
    shards = {"format": "parquet", "samples_per_shard": 1}
    lab = directory_lab(tmp_path, objects, shards=shards, on_bad_sample="skip")
    lab.prepare()
    names = [f"d-train-0000{n}-of-00003.parquet" for n in (0, 2)]
    assert [path.name for path in lab.files("d-train-*.parquet")] == names
    patterns = lab.only().version.splits["train"].patterns
    assert [Path(pattern).name for pattern in patterns] == names
    again, recorder = lab.recorded()
    assert (again["status"], recorder.keys("commit")) == ("reused", [])
