"""The examples of docs/how-to/streaming.md, run against what a run publishes in a bucket."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_lab import Lab, png, reach, write

from tests.support.servers import S3Server

pytestmark = pytest.mark.push

PAGE = (Path(__file__).parents[2] / "docs/how-to/streaming.md").read_text()


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), names)
    return names


def prepared(server: S3Server, folder: Path, objects: dict[str, bytes], shards: Any) -> str:
    bucket = "streaming-" + shards["format"]
    server.create_bucket(bucket)
    write(folder / "source", objects)
    lab = Lab(
        str(folder / "source"),
        {"url": f"s3://{bucket}", **reach(server)},
        folder / "out",
        {"labels": {"from": "folder"}, "shards": shards, "splits": {"train": "**"}},
    )
    lab.prepare()
    write(
        folder / "source", {key.replace("/", "/more-"): objects[key] for key in list(objects)[:2]}
    )
    lab.prepare()
    return bucket


def test_batches_are_streamed(s3_env, tmp_path, page):
    objects = {f"{'ab'[n % 2]}/{n:02}.png": png(n) for n in range(11)}
    shards = {"format": "batches", "samples_per_shard": 4}
    bucket = prepared(s3_env, tmp_path, objects, shards)
    sequence = page["ObjectStorageSequence"](bucket, "d", "train")
    batches = [sequence[number] for number in range(len(sequence))]
    assert [len(images) for images, _ in batches] == [4, 4, 3, 2]
    images = [image for own, _ in batches for image in own]
    order = sorted(objects)
    assert images[:11] == [objects[key] for key in order]
    labels = np.concatenate([own for _, own in batches]).tolist()
    assert labels[:11] == ["ab".index(key[0]) for key in order]


def test_records_are_streamed(s3_env, tmp_path, page):
    objects: dict[str, bytes] = {}
    for n in range(11):
        values = np.arange(5, dtype="<f4") + n
        objects[f"{'ab'[n % 2]}/{n:02}.f4"] = values.tobytes()
    bucket = prepared(s3_env, tmp_path, objects, {"format": "records", "bytes": 100})
    sequence = page["RecordSequence"](bucket, "d", "train")
    assert len(sequence) == 13
    for number, key in enumerate(sorted(objects)):
        record = sequence[number]
        assert record["f4"].tobytes() == objects[key]
        assert record["label"] == "ab".index(key[0])
    assert sequence[12]["f4"].tobytes() in objects.values()


def test_arrays_of_equal_parts_need_no_loop(s3_env, tmp_path, page):
    (line,) = re.findall(r"`(arrays\[\"f4\"\]\.view.*?)`", PAGE)
    values = np.arange(12, dtype="<f4").reshape(4, 3)
    arrays = {"f4": np.frombuffer(values.tobytes(), np.uint8), "label": np.zeros(4)}
    assert np.array_equal(eval(line, {"arrays": arrays}), values)
