"""Complete runs with records of tf.train.Example: built, grown, cached and read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
from example_proto import parsed
from pipeline_lab import Lab, contents, directory_lab, images, png, write

import larder
from larder.shards.formats.tfrecord.format import FRAME_BYTES, masked, record_header

OBJECTS = images(each=6)
FIELDS: dict[str, Any] = {
    "splits": {"validation": "c/**", "train": "**"},
    "shards": {"format": "tfrecord", "bytes": 2_000},
    "cluster": {"runner": {"workers": 1}},
}


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and data of the records of a file, with both checksums compared."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        assert data[at : at + 12] == record_header(size)
        record = data[at + 12 : at + 12 + size]
        assert data[at + 12 + size : at + FRAME_BYTES + size] == masked(google_crc32c.value(record))
        yield at, record
        at += FRAME_BYTES + size


def shards(lab: Lab, split: str = "train") -> list[Path]:
    """The listed shards of a split, as training gets them."""
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


def with_features(folder: Path, objects: dict[str, bytes], **fields: Any) -> Lab:
    format_ = {"format": "tfrecord", "bytes": 2_000, "features": FEATURES}
    return directory_lab(folder, objects, **{**FIELDS, "shards": format_, **fields})


def test_features_as_configured(tmp_path):
    lab = with_features(tmp_path, numbered(OBJECTS))
    assert not lab.plan()["shards"]["exact"]
    lab.prepare()
    found = [parsed(data) for path in shards(lab) for _, data in records(path)]
    by_picture = {each["picture"][1][0]: each for each in found}
    data = OBJECTS["a/01.png"]
    assert by_picture[data] == {
        "picture": ("bytes", [data]),
        "text": ("bytes", [b"a"]),
        "number": ("float", [0.0]),
        "n": ("int64", [len(data)]),
        "count.txt/text": ("bytes", [b"%d\n" % len(data)]),
        "weight": ("float", [0.5, -2.0]),
        "weight/text": ("bytes", [b"0.5 -2"]),
    }
    before = contents(lab.only())
    assert before["train", "a/01"]["weight"] == b"0.5 -2"
    # They are in the segment's document, with which its shards are read again.
    plan = lab.plan(shards={"format": "tfrecord", "bytes": 2_000})
    assert plan["growth"]["packed"]["count"] == len(before)
    lab.prepare(shards={"format": "webdataset", "bytes": 2_000})
    for published in lab.check().values():
        assert contents(published) == before


def test_new_classes_are_appended_and_other_names_pack_everything_again(tmp_path):
    lab = with_features(tmp_path, numbered(OBJECTS))
    lab.prepare(labels={"classes": ["a", "b", "c"]})
    write(lab.source, numbered({"d/00.png": png(950)}))
    document = lab.prepare(labels={"classes": ["a", "b", "c", "d"]})
    assert document["segments"]["total"] == 2
    texts = [parsed(data)["text"][1] for path in shards(lab) for _, data in records(path)]
    assert sorted({text for (text,) in texts}) == [b"a", b"b", b"d"]
    plan = lab.plan(labels={"classes": ["d", "a", "b", "c"]})
    assert plan["growth"]["decision"] == "fresh"
