"""TensorFlow reads the records, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import directory_lab, images

import larder

pytestmark = pytest.mark.slow

NOT_INSTALLED = (
    "TensorFlow is not installed (pip install 'larder-data[tensorflow]'; or name a Python that has"
    " it in LARDER_TENSORFLOW_PYTHON)"
)

READ = """
import json, sys
import tensorflow as tf

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
for record in tf.data.TFRecordDataset(sys.argv[1:]):
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
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python() -> str:
    if named := os.environ.get("LARDER_TENSORFLOW_PYTHON"):
        return named
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip(NOT_INSTALLED)
    return sys.executable


def run(python: str, code: str, paths: list[str]) -> list[Any]:
    done = subprocess.run(
        [python, "-c", code, *paths],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )
    found: list[Any] = json.loads(done.stdout)
    return found


GUIDE = Path(__file__).parents[2] / "docs/how-to/tfrecord-and-recordio.md"

DOCUMENTED = """
import json, sys

class data:
    shards = staticmethod(lambda split: sys.argv[1:])
{code}
print(json.dumps([
    [int(each["image/class/label"]), each["image/filename"].numpy().decode(),
     each["image/encoded"].numpy().hex()]
    for each in dataset
]))
"""


def test_the_code_of_the_guide_reads_the_default_features(python: str, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(import tensorflow.*?)```", GUIDE.read_text(), re.DOTALL)
    lab = directory_lab(tmp_path, shards={"format": "tfrecord", "bytes": 2_000})
    lab.prepare()
    paths = larder.open(f"{lab.storage}/larder/d@latest").shards("train")
    found = run(python, DOCUMENTED.format(code=code), list(paths))
    pictures = {key: data for key, data in images().items() if key.endswith(".png")}
    assert sorted(found) == sorted(
        ["abc".index(key[0]), key.removesuffix(".png"), data.hex()]
        for key, data in pictures.items()
    )


def test_tensorflow_reads_what_was_written(python: str, tmp_path: Path) -> None:
    counts = {f"a/{number:02}.count": b"%d -1" % number for number in range(4)}
    objects = images() | counts | {"b/01.weight": b"0.5 1e-3"}
    features = {
        "image/encoded": "image",
        "image/class/label": "label",
        "image/filename": "key",
        "count": ".count int64",
        "weight": ".weight float",
    }
    shards = {"format": "tfrecord", "bytes": 2_000, "features": features}
    lab = directory_lab(tmp_path, {**objects}, shards=shards)
    lab.prepare()
    paths = larder.open(f"{lab.storage}/larder/d@latest").shards("train")
    found = run(python, READ, list(paths))
    assert found == [
        {
            "image": data.hex(),
            "shape": [7, 9, 3],
            "label": "abc".index(key[0]),
            "key": key.removesuffix(".png"),
            "json": objects.get(key.replace("png", "json"), b"").decode(),
            "count": [int(key[2:4]), -1] if key.startswith("a/") else [],
            "weight": pytest.approx([0.5, 1e-3]) if key == "b/01.png" else [],
        }
        for key, data in sorted(objects.items())
        if key.endswith(".png")
    ]
