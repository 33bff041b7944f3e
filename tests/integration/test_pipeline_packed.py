"""Runs that pack samples or cache them again: damaged shards, lost files, known bad samples."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipeline_lab import Lab, directory_lab, images, objects_of, png, write
from required import at_night

import larder
from larder.errors import DamageError
from larder.manifest.sealed import seal
from larder.pipeline.preparing import prepare
from larder.versions.publish import read_segment
from tests.support.errors import larder_error
from tests.support.stores import KeyStop, Recorder

pytestmark = pytest.mark.push

OBJECTS = images("abc", 20)
FIELDS: dict[str, Any] = {"cache": None, "splits": {"train": ["a/**", "b/**"], "test": "c/**"}}


def reads(lab: Lab, recorder: Recorder) -> set[str]:
    keys = {
        f"{store.url}{call.key}"
        for store in recorder.stores
        for call in store.calls
        if call.method in ("get", "open")
    }
    places = f"file://{lab.source}/", f"{lab.root}mirror/"
    return {key.removeprefix(place) for place in places for key in keys if key.startswith(place)}


def test_a_damaged_old_shard_ends_the_run(tmp_path):
    lab = directory_lab(tmp_path, OBJECTS, **FIELDS)
    first = lab.prepare(on_bad_sample="skip")
    shard = next(
        path for path in lab.files("train/*.tar") if OBJECTS["a/10.png"] in path.read_bytes()
    )
    data = bytearray(shard.read_bytes())
    neighbours = [key for key in ("a/09.png", "a/11.png") if OBJECTS[key] in data]
    at = data.index(OBJECTS["a/10.png"])
    data[at] ^= 1  # no image any more
    shard.write_bytes(data)
    Path(str(lab.source), neighbours[0]).unlink()
    with pytest.raises(DamageError) as caught:
        lab.prepare(on_bad_sample="skip")
    assert (caught.value.code, caught.value.exit_status) == ("damage.record", 4)
    assert caught.value.where.endswith(f"{shard.name}: a/10.png")
    assert first["version"] in (lab.folder / "tags/latest.json").read_text()
    assert caught.value.hint == "run larder verify --repair, or restore it"
    data[at] ^= 1
    shard.write_bytes(data)
    lab.prepare(on_bad_sample="skip")
    assert len(objects_of(lab.newest())) == len(OBJECTS) - 1


BAD = {"a/05x.png": b"not an image", "b/zz.png": b"", "b/zz.seg.png": b"nor this"}


def skipped_rows(lab: Lab, segment: str) -> list[dict[str, Any]]:
    with lab.opened_root() as root:
        document = read_segment(root, segment)
        assert document is not None
        file = next(file for file in document.files if file.role == "skipped")
        assert document.skipped == 2
        path = lab.folder / file.path
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows


@pytest.mark.parametrize("mirror", [True, *at_night(False)])
def test_bad_samples_are_recorded_and_not_tried_again(tmp_path, mirror):
    fields = {**FIELDS, "on_bad_sample": "skip", "mirror": mirror, "validate": "header"}
    lab = directory_lab(tmp_path, OBJECTS | BAD, **fields)
    first, recorded = lab.recorded()
    assert first["skipped"] == 2
    assert reads(lab, recorded) >= BAD.keys()
    (segment,) = lab.newest().version.segments
    rows = skipped_rows(lab, segment.id)
    assert [(row["split"], row["key"], row["check"]) for row in rows] == [
        ("train", "a/05x", "header"),
        ("train", "b/zz", "header"),
    ]
    parts = {part["source"]: part["length"] for row in rows for part in row["parts"]}
    assert parts == {key: len(data) for key, data in BAD.items()}
    assert [row["bad"].split(":")[0] for row in rows] == ["a/05x.png", "b/zz.png"]

    new = {"c/zz.png": png(7)}
    write(str(lab.source), new)
    grown, recorded = lab.recorded()
    assert grown["skipped"] == 2
    assert reads(lab, recorded) == new.keys()

    # All is packed again: from the shards, and what is bad is known to be.
    shape = {"shards": {"bytes": 9_000}}
    again, recorded = lab.recorded(**shape)
    assert again["skipped"] == 2
    assert reads(lab, recorded) == set()
    (segment,) = lab.newest().version.segments
    assert skipped_rows(lab, segment.id) == rows
    fresh = directory_lab(tmp_path / "fresh", OBJECTS | BAD | new, **{**fields, **shape}).prepare()
    assert again["digest"] == fresh["digest"]

    # A stricter check tries everything again.
    stricter, recorded = lab.recorded(validate="decode", **shape)
    assert stricter["skipped"] == 2
    assert reads(lab, recorded) >= BAD.keys()


@pytest.mark.parametrize("mirror", [False, *at_night(True)])
def test_a_large_value_that_a_shard_can_only_give_whole_is_read_from_its_object(tmp_path, mirror):
    """Not more than an eighth of copy.memory_bytes is read whole, here 128 KiB."""
    objects = {"a/large.bin": bytes(200_000), "a/small.bin": b"small", "b/gone.bin": b"gone"}
    fields = {
        "mirror": mirror,
        "cache": None,
        "shards": {"format": "parquet", "bytes": 300_000},
        "cluster": {"copy": {"memory_bytes": "1 MiB"}},
        "labels": None,
    }
    lab = directory_lab(tmp_path, objects, **fields)
    lab.prepare()
    Path(str(lab.source), "b/gone.bin").unlink()
    plan, (_, recorded) = lab.plan(), lab.recorded()
    assert reads(lab, recorded) == {"a/large.bin"}
    assert plan["growth"]["packed"] == {"count": 1, "bytes": 5}
    assert objects_of(lab.newest()) == {key: objects[key] for key in ("a/large.bin", "a/small.bin")}


CACHED: dict[str, Any] = {"splits": {"validation": "c/**", "train": "**"}}


def cached_keys(lab: Lab, split: str) -> list[str]:
    with larder.open(f"{lab.storage}/larder/d").cache(split, verify=True) as cache:
        return [record["key"] for record in cache]


@pytest.mark.parametrize("receipt", [True, False])
def test_a_lost_file_of_a_complete_cache_is_made_again(tmp_path, receipt):
    """The cache is complete, but no version is: nothing else has looked at it since."""
    lab = directory_lab(tmp_path, **CACHED)
    lab.prepare(cache=None)
    assert lab.stopped(KeyStop("version.json")) is None
    path = lab.file("train-*.mdb")
    data = path.read_bytes()
    path.unlink()
    if not receipt:
        for note in Path(str(lab.storage)).rglob("work/caches/*/*.json"):
            note.unlink()
    document, calls = lab.recorded()
    keys = [call.key for call in calls.writes if "/work/" not in call.key]
    assert [Path(key).name for key in keys if key.endswith(".mdb")] == [path.name]
    assert path.read_bytes() == data
    assert document["cache"]["records"] == 12
    lab.check()


def test_a_lost_file_that_another_machine_has_written_is_named(tmp_path, monkeypatch):
    """Here its bytes would differ, so it would get another name than cache.json says."""
    lab = directory_lab(tmp_path, **CACHED)
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
