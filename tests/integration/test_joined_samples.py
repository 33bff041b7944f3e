"""Samples whose parts are under different prefixes, of any kind: text, audio, video, images."""

import json
from typing import Any

from pipeline_lab import png
from test_annotations import as_lines, parts
from test_growth import Source

from tests.support.checker import Published

JOIN = {"image": "images/{id}.png", "mask": "masks/{id}_mask.png", "caption": "captions/{id}.txt"}
CLASSES = ("cat", "dog")


def objects(numbers: range) -> dict[str, bytes]:
    found = {}
    for name in CLASSES:
        for at in numbers:
            found[f"images/{name}/{at}.png"] = png(at)
            found[f"masks/{name}/{at}_mask.png"] = png(at + 1_000)
            found[f"captions/{name}/{at}.txt"] = f"{name} number {at}, 猫".encode()
    return found


FIELDS: dict[str, Any] = {
    "samples": {"join": JOIN},
    "labels": {"from": "folder"},
    "shards": {"bytes": 8_000},
    "validate": "decode",
}


def check_joined(published: Published, numbers: range) -> None:
    everything, found = objects(numbers), parts(published)
    assert set(found) == {f"{name}/{at}" for name in CLASSES for at in numbers}
    for key, own in found.items():
        assert own == {
            "image.png": everything[f"images/{key}.png"],
            "mask.png": everything[f"masks/{key}_mask.png"],
            "caption.txt": everything[f"captions/{key}.txt"],
            "cls": str(CLASSES.index(key.partition("/")[0])).encode(),
        }


def test_images_with_masks_and_captions_grow(tmp_path):
    source = Source(tmp_path, **FIELDS, cache={"records": "decoded"})
    document = source.prepare(objects(range(5)))
    check_joined(source.check()[document["version"]], range(5))
    document = source.prepare(objects(range(6)))
    assert document["segments"] == {"total": 2, "new": 1, "omitted": 0}
    check_joined(source.check()[document["version"]], range(6))
    changed = {**objects(range(6)), "masks/dog/2_mask.png": png(7)}
    document = source.prepare(changed, growth={"removals": "omit"})
    assert document["segments"]["omitted"] == 1
    assert parts(source.check()[document["version"]])["dog/2"]["mask.png"] == png(7)


def test_joined_samples_have_annotations(tmp_path):
    rows = [{"image": f"{name}/{at}.png", "n": at} for name in CLASSES for at in range(4)]
    table = as_lines(rows)
    annotations = {"files": "table.jsonl", "key": "image", "part": "meta.json"}
    source = Source(tmp_path, **{**FIELDS, "samples": {"join": JOIN, "annotations": annotations}})
    document = source.prepare({**objects(range(4)), "table.jsonl": table})
    found = parts(source.check()[document["version"]])
    assert len(found) == 8
    assert json.loads(found["dog/3"]["meta.json"]) == {"image": "dog/3.png", "n": 3}
    assert set(found["dog/3"]) == {"image.png", "mask.png", "caption.txt", "meta.json", "cls"}
