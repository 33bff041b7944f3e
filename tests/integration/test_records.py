"""Complete runs with records of tf.train.Example: built, grown, cached and read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from example_proto import parsed
from pipeline_lab import Lab, contents, directory_lab, images, png, write

import larder
from larder.shards.formats.tfrecord.format import FRAME_BYTES

OBJECTS = images(each=6)
FIELDS: dict[str, Any] = {
    "splits": {"validation": "c/**", "train": "**"},
    "shards": {"format": "tfrecord", "bytes": 2_000},
    "cluster": {"runner": {"workers": 1}},
}


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, without their lengths and checksums."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 12 : at + 12 + size]
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


def test_new_classes_are_appended_and_other_names_pack_everything_again(tmp_path):
    lab = with_features(tmp_path, numbered(OBJECTS))
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
