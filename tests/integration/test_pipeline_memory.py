"""Memory is bounded by the configuration, not by the objects."""

import json
from pathlib import Path
from typing import Any

import pytest
from image_files import saved
from PIL import Image
from pipeline_lab import write
from required import at_night

from tests.support.processes import run_python

OBJECT_BYTES = 100_000_000
BOUND_BYTES = 40_000_000

RUN = r"""
import json, re, sys, threading
from pathlib import Path
from larder.machine import keep_memory_small

keep_memory_small()  # as commands do
from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import prepare
from larder.verify.verifying import VerifySettings, verify
from larder.progress import StageTimes
from tests.support.runs import run_settings

fields, runner, step = json.loads(sys.argv[3]), json.loads(sys.argv[4]), sys.argv[5]

def run(name):
    folder = Path(sys.argv[1], name)
    copy = {"memory_bytes": int(sys.argv[2]), "concurrency": 4}
    source = {"url": str(folder / "source"), **fields.get("source", {})}
    settings = run_settings(
        source,
        folder / "local",
        folder / "out",
        cluster={"copy": copy, "runner": runner},
        **{name: value for name, value in fields.items() if name != "source"},
    )
    if step == "prepare":
        prepare(settings)
    else:
        runs = InlineRunner(runner["workers"], StageTimes(), threading.Event())
        assert verify(VerifySettings(settings), runs)["status"] == "intact"
    # Not getrusage, whose peak begins with that of the process that started this one.
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])

before = run("small")
print(run("large") - before)
"""


WIDE, HIGH = 6_000, 5_000

pytestmark = [
    pytest.mark.push,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak there"),
]


def more_bytes(
    folder: Path,
    memory_bytes: int,
    *,
    runner: dict[str, Any] | None = None,
    step: str = "prepare",
    **fields: Any,
) -> int:
    """By how much the peak of a run over ``large`` exceeds that of one over ``small``."""
    workers = 1 if "shards" in fields else 2  # one transforms in its own process
    options = [json.dumps(each) for each in (fields, {"workers": workers, **(runner or {})})]
    done = run_python("-c", RUN, folder, memory_bytes, *options, step)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def png(width: int, height: int) -> bytes:
    return saved(Image.new("RGB", (width, height), (1, 2, 3)), compress_level=1)


def test_a_large_object_is_prepared_and_verified_in_small_pieces(tmp_path):
    write(tmp_path / "small" / "source", {"a.bin": b"1", "b.bin": b"2"})
    write(tmp_path / "large" / "source", {"a.bin": bytes(OBJECT_BYTES), "b.bin": b"2"})
    assert more_bytes(tmp_path, 16 * 1024**2) < BOUND_BYTES
    assert more_bytes(tmp_path, 16 * 1024**2, step="verify") < BOUND_BYTES


@pytest.mark.parametrize(
    ("shard_format", "times"),
    [("parquet", 2), *at_night(("webdataset", 0), ("tfrecord", 0), ("recordio", 0))],
)
def test_how_often_a_large_sample_is_in_memory(tmp_path, shard_format, times):
    """With two batches at once. As it was read it is in a file; pyarrow makes copies."""
    size_bytes = OBJECT_BYTES // 2
    write(tmp_path / "small" / "source", {f"{name}.bin": b"1" for name in "abcd"})
    write(tmp_path / "large" / "source", {f"{name}.bin": bytes(size_bytes) for name in "abcd"})
    runner = {"workers": 2, "batch_bytes": size_bytes}
    found = more_bytes(tmp_path, 128 * 1024**2, runner=runner, shards={"format": shard_format})
    assert found < times * size_bytes + BOUND_BYTES


def write_rows(folder: Path, most: int) -> None:
    for name, rows in (("small", 70_000), ("large", most)):
        lines = "".join(f'{{"row": {number}}}\n' for number in range(rows))
        write(folder / name / "source", {"rows.jsonl": lines.encode()})


@pytest.mark.parametrize(
    "shard_format", ["webdataset", *at_night("tfrecord", "recordio", "parquet")]
)
def test_memory_does_not_grow_with_the_number_of_samples(tmp_path, shard_format):
    """Beyond a row group of the manifests, which both fill."""
    write_rows(tmp_path, 600_000)
    fields: dict[str, Any] = {"source": {"rows": {}}, "shards": {"format": shard_format}}
    assert more_bytes(tmp_path, 128 * 1024**2, **fields) < 1.5 * BOUND_BYTES  # 30 MB are noise


@pytest.mark.parametrize("shard_format", ["parquet", *at_night("webdataset")])
def test_memory_of_a_verification_does_not_grow_with_the_number_of_shards(tmp_path, shard_format):
    """The index of one shard is in memory at a time."""
    write_rows(tmp_path, 200_000)
    shards = {"format": shard_format, "samples_per_shard": 20_000}
    fields: dict[str, Any] = {"source": {"rows": {}}, "shards": shards}
    more_bytes(tmp_path, 128 * 1024**2, **fields)
    assert more_bytes(tmp_path, 128 * 1024**2, step="verify", **fields) < BOUND_BYTES


@pytest.mark.parametrize(
    ("fields", "names", "bytes_per_pixel"),
    [
        # The array, its record, and LMDB's copy of that; a file that was written is mapped.
        ({"cache": {"records": "decoded"}}, "abcd", 9),
        *at_night(
            ({}, "aaaa", 4),
            ({"shards": {"images": {"quality": 90}}}, "aaaa", 4),
            ({"shards": {"images": {"resize": 256}}}, "aaaa", 4),
        ),
    ],
    ids=["cached", "checked", "encoded again", "resized"],
)
def test_one_image_is_decoded_at_a_time_if_memory_is_short(
    tmp_path, fields, names, bytes_per_pixel
):
    for folder, data in (("small", png(60, 50)), ("large", png(WIDE, HIGH))):
        images = {f"{split}/{number}.png": data for number, split in enumerate(names)}
        write(tmp_path / folder / "source", images)
    fields = {"splits": {split: f"{split}/**" for split in names}, "validate": "decode"} | fields
    found = more_bytes(tmp_path, 128 * 1024**2, **fields)
    assert found < bytes_per_pixel * WIDE * HIGH + 1.5 * BOUND_BYTES
