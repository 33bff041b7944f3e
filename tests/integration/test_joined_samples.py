"""Samples whose parts are under different prefixes, of any kind: text, audio, video, images."""

import json
from typing import Any

from pipeline_lab import png
from test_annotations import as_lines, parts, refused
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


def test_objects_that_match_no_pattern(tmp_path):
    others = {"readme.md", "images/cat/9.jpg", "images/cat/1.0.png"}
    found = objects(range(2)) | dict.fromkeys(others, b"x")
    source = Source(tmp_path, **FIELDS)
    error = refused(source, found)
    assert error.code == "config.bad_key"
    document = source.prepare(found, on_bad_key="skip")
    assert {failure["key"] for failure in document["failures"]} == others
    check_joined(source.check()[document["version"]], range(2))


def test_videos_with_frames_sound_and_text(tmp_path):
    found: dict[str, bytes] = {}
    for at in range(5):
        found[f"videos/v{at}.mp4"] = b"clip %d" % at
        found[f"sound/v{at}.wav"] = b"sound %d" % at
        found[f"text/v{at}.json"] = json.dumps({"at": at}).encode()
        found |= {f"frames/v{at}/{frame:03}.png": png(at * 10 + frame) for frame in range(at + 1)}
    join = {
        "clip": "videos/{id}.mp4",
        "sound": "sound/{id}.wav",
        "text": "text/{id}.json",
        "frame": "frames/{id}/*.png",
    }
    source = Source(tmp_path, samples={"join": join}, cache={"records": "encoded"})
    document = source.prepare(found)
    assert "merged_samples" not in {each["code"] for each in document["warnings"]}
    published = parts(source.check()[document["version"]])
    for at in range(5):
        frames = {f"frame.{frame:03}.png": png(at * 10 + frame) for frame in range(at + 1)}
        media = {
            "clip.mp4": b"clip %d" % at,
            "sound.wav": b"sound %d" % at,
            "text.json": found[f"text/v{at}.json"],
        }
        assert published[f"v{at}"] == {**frames, **media}
