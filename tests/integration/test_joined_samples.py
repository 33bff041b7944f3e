"""Samples whose parts are under different prefixes, and the names of parts in batches."""

import json
from typing import Any

import pytest
from pipeline_lab import directory_lab, png
from required import at_push
from test_annotations import as_lines, parts
from test_growth import lab_of, prepare

import larder
from larder.errors import ConfigError
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
    source = lab_of(tmp_path, **FIELDS, cache={"records": "decoded"})
    document = prepare(source, objects(range(5)))
    check_joined(source.check()[document["version"]], range(5))
    document = prepare(source, objects(range(6)))
    assert document["segments"] == {"total": 2, "new": 1, "omitted": 0}
    check_joined(source.check()[document["version"]], range(6))
    changed = {**objects(range(6)), "masks/dog/2_mask.png": png(7)}
    document = prepare(source, changed, growth={"removals": "omit"})
    assert document["segments"]["omitted"] == 1
    assert parts(source.check()[document["version"]])["dog/2"]["mask.png"] == png(7)


def test_joined_samples_have_annotations(tmp_path):
    rows = [{"image": f"{name}/{at}.png", "n": at} for name in CLASSES for at in range(4)]
    table = as_lines(rows)
    annotations = {"files": "table.jsonl", "key": "image", "part": "meta.json"}
    source = lab_of(tmp_path, **{**FIELDS, "samples": {"join": JOIN, "annotations": annotations}})
    document = prepare(source, {**objects(range(4)), "table.jsonl": table})
    found = parts(source.check()[document["version"]])
    assert len(found) == 8
    assert json.loads(found["dog/3"]["meta.json"]) == {"image": "dog/3.png", "n": 3}
    assert set(found["dog/3"]) == {"image.png", "mask.png", "caption.txt", "meta.json", "cls"}


EXTS = ("label", "key", "image", "image.txt", "part.label", "part", "left.key", "txt")
NAMES = {
    "label": "part.label",
    "key": "part.key",
    "image": "part.image",
    "image.txt": "part.image.txt",
    "part.label": "part.part.label",
}
PLAIN = {"validate": "none"}


def odd_parts() -> dict[str, bytes]:
    parts = {f"cat/{at}.{ext}": f"{ext} {at}".encode() for at in range(3) for ext in EXTS}
    return parts | {f"cat/{at}.image.png": png(at) for at in range(3)}


@pytest.mark.parametrize("cache", [None, {"records": "encoded"}])
def test_no_part_takes_the_place_of_a_key_or_a_label(tmp_path, cache):
    lab = directory_lab(tmp_path, odd_parts(), **PLAIN, cache=cache)
    lab.prepare()
    data = larder.open(f"{lab.storage}/larder/d")
    (batch,) = data.loader("train", batch_size=3)
    assert batch.pop("key") == ["cat/0", "cat/1", "cat/2"]
    assert batch.pop("label").tolist() == [0, 0, 0]
    pictures = batch.pop("part.image.png")
    assert [bytes(picture) for picture in pictures] == [png(at) for at in range(3)]
    assert {name: [bytes(value) for value in values] for name, values in batch.items()} == {
        NAMES.get(ext, ext): [f"{ext} {at}".encode() for at in range(3)] for ext in EXTS
    }


@pytest.mark.parametrize("cache", [None, *at_push({"records": "encoded"})])
def test_columns_and_images_are_chosen_by_these_names(tmp_path, cache):
    lab = directory_lab(tmp_path, odd_parts(), **PLAIN, cache=cache)
    lab.prepare()
    data = larder.open(f"{lab.storage}/larder/d")
    columns = ["key", "label", "part.label", "part.part.label", "image.image"]
    options = {"batch_size": 3, "columns": columns, "decode": larder.Images(masks=["image.png"])}
    (batch,) = data.loader("train", **options)
    assert list(batch) == columns
    assert bytes(batch["part.label"][1]) == b"label 1"
    assert bytes(batch["part.part.label"][1]) == b"part.label 1"
    assert batch["image.image"].shape == (3, 7, 9, 3)
    with pytest.raises(ConfigError, match="no value"):
        data.loader("train", batch_size=3, columns=["part.cls"])
