"""TensorFlow reads the records, in a process of its own."""

import re
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images
from required import read_by_others

import larder

pytestmark = pytest.mark.push

PROGRAM = """
import json, sys
import tensorflow as tf

given = json.load(sys.stdin)

example = tf.io.FixedLenFeature
wanted = {
    "image/encoded": example([], tf.string),
    "image/class/label": example([], tf.int64),
    "image/filename": example([], tf.string),
    "json": example([], tf.string, b""),
    "count": tf.io.VarLenFeature(tf.int64),
    "weight": tf.io.VarLenFeature(tf.float32),
}
found = []
for record in tf.data.TFRecordDataset(given["features"]):
    each = tf.io.parse_single_example(record, wanted)
    image = tf.io.decode_image(each["image/encoded"])
    found.append({
        "image": each["image/encoded"].numpy().hex(),
        "shape": list(image.shape),
        "label": int(each["image/class/label"]),
        "key": each["image/filename"].numpy().decode(),
        "json": each["json"].numpy().decode(),
        "count": tf.sparse.to_dense(each["count"]).numpy().tolist(),
        "weight": tf.sparse.to_dense(each["weight"]).numpy().tolist(),
    })

class data:
    shards = staticmethod(lambda split: given["default"])

exec(given["guide"])
documented = [
    [int(each["image/class/label"]), each["image/filename"].numpy().decode(),
     each["image/encoded"].numpy().hex()]
    for each in dataset
]
print(json.dumps({"features": found, "default": documented}))
"""
GUIDE = Path(__file__).parents[2] / "docs/how-to/tfrecord-and-recordio.md"
OBJECTS = (
    images()
    | {f"a/{number:02}.count": b"%d -1" % number for number in range(4)}
    | {"b/01.weight": b"0.5 1e-3"}
)
FEATURES = {
    "image/encoded": "image",
    "image/class/label": "label",
    "image/filename": "key",
    "count": ".count int64",
    "weight": ".weight float",
}


def shards_of(lab: Lab) -> list[str]:
    lab.prepare()
    return list(larder.open(f"{lab.storage}/larder/d@latest").shards("train"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    (code,) = re.findall(r"```python\n(import tensorflow.*?)```", GUIDE.read_text(), re.DOTALL)
    shards: dict[str, Any] = {"format": "tfrecord", "bytes": 2_000}
    plain = directory_lab(tmp_path_factory.mktemp("default"), shards=shards)
    own = directory_lab(
        tmp_path_factory.mktemp("features"), OBJECTS, shards={**shards, "features": FEATURES}
    )
    given = {"guide": code, "default": shards_of(plain), "features": shards_of(own)}
    read: dict[str, list[Any]] = read_by_others(PROGRAM, given)
    return read


def test_the_code_of_the_guide_reads_the_default_features(found):
    pictures = {key: data for key, data in images().items() if key.endswith(".png")}
    assert sorted(found["default"]) == sorted(
        ["abc".index(key[0]), key.removesuffix(".png"), data.hex()]
        for key, data in pictures.items()
    )


def test_tensorflow_reads_what_was_written(found):
    assert found["features"] == [
        {
            "image": data.hex(),
            "shape": [7, 9, 3],
            "label": "abc".index(key[0]),
            "key": key.removesuffix(".png"),
            "json": OBJECTS.get(key.replace("png", "json"), b"").decode(),
            "count": [int(key[2:4]), -1] if key.startswith("a/") else [],
            "weight": pytest.approx([0.5, 1e-3]) if key == "b/01.png" else [],
        }
        for key, data in sorted(OBJECTS.items())
        if key.endswith(".png")
    ]
