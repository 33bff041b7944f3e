"""Caches of segments: each is built once, and on its own."""

from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab

import larder
from tests.support.stores import KeyStop, Recorder

FIELDS: dict[str, Any] = {"splits": {"validation": "c/**", "train": "**"}}


def written(recorder: Recorder, *ends: str) -> list[str]:
    keys = (call.key for call in recorder.writes)
    return sorted(key for key in keys if key.endswith(ends) and "/work/" not in key)


def keys(lab: Lab, split: str) -> list[str]:
    with larder.open(f"{lab.storage}/larder/d").cache(split, verify=True) as cache:
        return [record["key"] for record in cache]


@pytest.mark.push
@pytest.mark.parametrize("receipt", [True, False])
def test_a_lost_file_of_a_complete_cache_is_made_again(tmp_path, receipt):
    """The cache is complete, but no version is: nothing else has looked at it since."""
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare(cache=None)
    assert lab.stopped(KeyStop("version.json")) is None
    path = lab.file("train-*.mdb")
    data = path.read_bytes()
    path.unlink()
    if not receipt:
        for note in Path(str(lab.storage)).rglob("work/caches/*/*.json"):
            note.unlink()
    document, calls = lab.recorded()
    assert [Path(key).name for key in written(calls, ".mdb")] == [path.name]
    assert path.read_bytes() == data
    assert document["cache"]["records"] == 12
    lab.check()
