"""Caches of segments: each is built once, and on its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab

import larder
from larder.manifest.sealed import seal
from larder.pipeline.prepare import prepare
from tests.support.errors import larder_error
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


@pytest.mark.push
def test_a_lost_file_that_another_machine_has_written_is_named(tmp_path, monkeypatch):
    """Here its bytes would differ, so it would get another name than cache.json says."""
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare(cache=None)
    assert lab.stopped(KeyStop("version.json")) is None
    document = lab.file("cache.json")
    path = lab.file("train-*.mdb")
    text = document.read_text()
    other = text.replace(json.loads(text)["files"]["train"]["sha256"], "0" * 64)
    plain = json.loads(other.replace(path.name, f"train-{'0' * 16}.mdb"))
    plain.pop("self_sha256")
    document.write_bytes(seal(plain))
    with larder_error("damage.size") as caught:
        prepare(lab.settings())
    assert f"train-{'0' * 16}.mdb" in caught.value.where
    assert f"delete segments/{document.parents[2].name}/caches/" in caught.value.hint
    document.unlink()
    assert lab.prepare()["cache"]["records"] == 12
    lab.check()
