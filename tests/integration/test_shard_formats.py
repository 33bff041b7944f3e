"""Shards of several files, counted names, and features of records, in complete runs."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_proto import parsed
from pipeline_lab import Lab, contents, directory_lab, flip, images, png, write
from required import at_night

import larder
from larder.shards.formats.tfrecord.format import FRAME_BYTES
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


def records(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 12 : at + 12 + size]
        at += FRAME_BYTES + size


def shards(lab: Lab, split: str = "train") -> list[Path]:
    return [Path(path) for path in larder.open(f"{lab.storage}/larder/d@latest").shards(split)]


FEATURES = {
    "picture": "image",
    "text": "class",
    "number": "label float",
    "n": ".count.txt int64",
    "weight": ".weight float",
}


def numbered(objects: dict[str, bytes]) -> dict[str, bytes]:
    counts = {f"{key[:4]}.count.txt": b"%d\n" % len(data) for key, data in objects.items()}
    return objects | counts | {"a/01.weight": b"0.5 -2"}


def test_new_classes_are_appended_and_other_names_pack_everything_again(tmp_path):
    lab = directory_lab(
        tmp_path,
        numbered(images(each=6)),
        splits={"validation": "c/**", "train": "**"},
        shards={"format": "tfrecord", "bytes": 2_000, "features": FEATURES},
        cluster={"runner": {"workers": 1}},
    )
    lab.prepare(labels={"classes": ["a", "b", "c"]})
    write(lab.source, numbered({"d/00.png": png(950)}))
    document = lab.prepare(labels={"classes": ["a", "b", "c", "d"]})
    assert document["segments"]["total"] == 2
    texts = [parsed(data)["text"][1] for path in shards(lab) for data in records(path)]
    assert sorted({text for (text,) in texts}) == [b"a", b"b", b"d"]
    plan = lab.plan(labels={"classes": ["d", "a", "b", "c"]})
    assert plan["growth"]["decision"] == "fresh"
    # The features are in the document of a segment, with which its shards are read again.
    before = contents(lab.newest())
    assert before["train", "a/01"]["weight"] == b"0.5 -2"
    labels = {"classes": ["a", "b", "c", "d"]}
    lab.prepare(shards={"format": "webdataset", "bytes": 2_000}, labels=labels)
    assert contents(lab.newest()) == before
