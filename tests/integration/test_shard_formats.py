"""A complete run with a shard format that differs from tar in every respect."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from column_format import registered
from pipeline_lab import Lab, directory_lab, flip, images
from required import at_night

from larder.store.delegate import DelegatingStore
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import KeyStop

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
    "shards": {"format": "columns", "bytes": 600},
    "validate": "decode",
    "cache": {"records": "decoded"},
    "on_bad_sample": "skip",
    "cluster": {"runner": {"workers": 1, "batch_bytes": 1_400}},
}
# The second is left out; of the others each is its own.
OBJECTS = images(each=5) | {"a/01.png": b"no image" * 40}


@pytest.fixture(autouse=True)
def columns() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path, OBJECTS, **FIELDS)


def shard_files(lab: Lab) -> dict[str, int]:
    """Length of every file of shards, by split and name."""
    paths = [*lab.files("*.cols"), *lab.files("*.rows")]
    return {f"{path.parent.name}/{path.name}": path.stat().st_size for path in paths}


@pytest.mark.push
@pytest.mark.parametrize("ext", ["cols", "rows"])
@pytest.mark.parametrize("lost", [False, *at_night(True)])
def test_a_shard_with_one_altered_file_is_made_again(lab, ext, lost):
    expected = lab.prepare()["digest"]
    shutil.rmtree(str(lab.storage))
    assert lab.stopped(KeyStop("segment.json")) is None
    name = "d-train-00001-of-00005"
    path = lab.file(f"{name}.{ext}")
    if lost:
        path.unlink()
    else:
        flip(path)
    document, recorder = lab.recorded()
    written = [key.rpartition("/")[2] for key in recorder.keys("commit")]
    assert document["digest"] == expected
    assert Counter(written) == Counter([f"{name}.cols", f"{name}.rows"])
    assert document["shards"]["reused"] == document["shards"]["count"] - 1
    lab.check()


def test_the_cache_is_not_built_from_a_shard_that_differs_from_its_index(lab):
    class Shifted(DelegatingStore):
        """A storage in which two parts of a shard are not cut where they were."""

        def get(self, key: str, **options: Any) -> bytes:
            data = bytes(super().get(key, **options))
            if not (key.endswith(".rows") and "validation" in key):
                return data
            rows = json.loads(data)
            rows["columns"]["png"][1][0] -= 1
            return json.dumps(rows).encode()

    with between(Shifted), larder_error("damage.record") as caught:
        lab.prepare()
    assert caught.value.where.endswith(".cols: c/00.png")
    assert lab.check() == {}


def test_a_shard_without_samples_leaves_no_file(tmp_path):
    """The names of the others count it: they were given before anything was read."""
    objects = {f"a/{n}.png": b"no image" * 90 if n == 1 else images()["a/00.png"] for n in range(3)}
    fields = {"splits": {"train": "**"}, "shards": {"format": "columns", "bytes": 300}}
    lab = directory_lab(tmp_path, objects, **{**FIELDS, **fields})
    lab.prepare()
    names = {f"train/d-train-0000{n}-of-00003.{ext}" for n in (0, 2) for ext in ("cols", "rows")}
    assert set(shard_files(lab)) == names
    patterns = lab.only().version.splits["train"].patterns
    assert [Path(pattern).name for pattern in patterns] == [
        "d-train-00000-of-00003.cols",
        "d-train-00002-of-00003.cols",
    ]
    again, recorder = lab.recorded()
    assert (again["status"], recorder.keys("commit")) == ("reused", [])
