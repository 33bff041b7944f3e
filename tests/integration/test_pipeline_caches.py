"""Caches of segments: each is built once, and on its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, png, write

import larder
from larder.errors import DamageError
from larder.manifest.sealed import seal, unseal
from larder.pipeline.prepare import prepare
from tests.support.stores import KeyStop, Recorder

FIELDS: dict[str, Any] = {"splits": {"validation": "c/**", "train": "**"}}
MORE = {"a/90.png": png(90), "c/91.png": png(91)}


def written(recorder: Recorder, *ends: str) -> list[str]:
    keys = (call.key for call in recorder.writes)
    return sorted(key for key in keys if key.endswith(ends) and "/work/" not in key)


def keys(lab: Lab, split: str) -> list[str]:
    with larder.open(f"{lab.storage}/larder/d").cache(split, verify=True) as cache:
        return [record["key"] for record in cache]


def test_a_growth_builds_the_cache_of_its_new_segment_alone(tmp_path):
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare()
    first = lab.file("cache.json")
    write(lab.source, MORE)
    document, calls = lab.recorded()
    assert document["segments"] == {"total": 2, "new": 1, "omitted": 0}
    made = written(calls, ".mdb", "cache.json")
    (segment,) = {key.split("/")[1] for key in made}
    assert segment not in str(first)
    assert [Path(key).name.partition("-")[0] for key in made] == [
        "cache.json",
        "train",
        "validation",
    ]
    assert keys(lab, "train") == [f"{name}/{n:02}" for name in "ab" for n in range(4)] + ["a/90"]
    assert keys(lab, "validation") == [f"c/{n:02}" for n in range(4)] + ["c/91"]
    lab.check()


@pytest.mark.parametrize("turned_on", [False, True])
def test_a_run_killed_between_the_files_and_their_document_goes_on(tmp_path, turned_on):
    lab = directory_lab(tmp_path, **FIELDS)
    if turned_on:
        lab.prepare(cache=None)
    assert lab.stopped(KeyStop("cache.json")) is None
    receipts = sorted(Path(str(lab.storage)).rglob("work/caches/*/*.json"))
    assert [path.stem for path in receipts] == ["train", "validation"]
    noted = unseal(receipts[0].read_bytes(), "x")
    assert noted["split"] == "train"
    assert receipts[0].parent.name == Path(noted["path"]).parent.name
    document, calls = lab.recorded()
    assert written(calls, ".mdb") == []
    assert len(written(calls, "cache.json")) == 1
    assert document["cache"]["records"] == 12
    lab.check()


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
    with pytest.raises(DamageError) as caught:
        prepare(lab.settings())
    assert caught.value.code == "damage.size"
    assert f"train-{'0' * 16}.mdb" in caught.value.where
    assert f"delete segments/{document.parents[2].name}/caches/" in caught.value.hint
    document.unlink()
    assert lab.prepare()["cache"]["records"] == 12
    lab.check()


def test_a_cache_has_the_records_of_omitted_samples_too(tmp_path):
    """They are left out by whoever reads it; so a removal builds no cache."""
    lab = directory_lab(tmp_path, **FIELDS, growth={"removals": "omit"})
    lab.prepare()
    Path(str(lab.source), "a/01.png").unlink()
    document, calls = lab.recorded()
    assert written(calls, ".mdb", "cache.json", ".tar") == []
    assert document["cache"]["records"] == 11
    assert keys(lab, "train") == [
        key.removesuffix(".png")
        for key in sorted(images("ab"))
        if key.endswith(".png") and key != "a/01.png"
    ]
    lab.check()
