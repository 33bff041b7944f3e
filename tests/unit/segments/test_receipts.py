"""The receipts of shards: what they hold, which one counts, and how shards are found by them."""

import hashlib
import tracemalloc
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from larder.config.shape import FormatOptions
from larder.disk import scratch
from larder.errors import DamageError
from larder.progress import NullProgress
from larder.segments.segment_job import Job
from larder.segments.shard_receipts import (
    FinishedShard,
    finished_shards,
    list_shards,
    planned_receipts,
    put_receipt,
    read_receipt,
)
from larder.shards.index_rows import IndexRows
from larder.shards.model import Part, PlannedSample, ShardPlan, ShardResult, WrittenFile
from larder.store import open_store
from larder.store.base import Store
from larder.versions import layout
from tests.support.errors import larder_error
from tests.support.stores import RecordingStore, keys_of

QUIET = NullProgress()
RECEIPTS = layout.receipts_prefix("s")
STEP = 61
"""From one damaged byte to the next."""


@pytest.fixture(params=["memory", "directory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> RecordingStore:
    directory = request.param == "directory"
    url = str(tmp_path / "root") if directory else f"memory://{uuid.uuid4().hex}/"
    return RecordingStore(open_store(url))


def name(number: int) -> str:
    return f"d-train-{number:06d}.tar"


def plans(*numbers: int, split: str = "train") -> list[ShardPlan]:
    return [ShardPlan(split, number, name(number), 0, 2, 5) for number in numbers]


SHAPE = SimpleNamespace(use=("webdataset", FormatOptions()))
JOB = cast("Job", SimpleNamespace(segment="s", shape=SHAPE))


def result(number: int, files: Sequence[WrittenFile], skipped: int) -> ShardResult:
    """A shard of one sample if it has files, and of samples that were left out."""
    rows, bad = IndexRows(), IndexRows()
    if files:
        rows.add((f"{number}/good", 0, 512, 3), [("jpg", "good.jpg", "e", 512, 7, 11)])
    for place in range(skipped):
        part = Part("jpg", "bad.jpg", 9, "f")
        bad.add_bad(PlannedSample("train", f"{number}/bad{place}", 3, (part,)), "x" * 300)
    return ShardResult("train", name(number), tuple(files), rows.finish(), bad.finish())


def put_shard(root: Store, number: int, data: bytes = b"shard", skipped: int = 1) -> FinishedShard:
    """Write a shard and its receipt; without data, all of its samples were left out."""
    files: tuple[WrittenFile, ...] = ()
    if data:
        etag = root.put(layout.shard_key("s", "train", name(number)), data).etag
        files = (WrittenFile(name(number), len(data), hashlib.sha256(data).hexdigest(), etag),)
    index = WrittenFile("x", 1, "0" * 64, kind="dali")
    shard = FinishedShard("train", name(number), files, len(files), (), (index,))
    with scratch() as folder:
        put_receipt(root, "s", shard, result(number, files, skipped).rows(), folder)
    return shard


def numbers(shards: Sequence[object]) -> list[int]:
    return [shard.plan.index for shard in shards]  # type: ignore[attr-defined]


def test_a_receipt_has_the_shard_its_samples_and_those_left_out(root):
    shard = put_shard(root, 1)
    (key,) = keys_of(root, RECEIPTS)
    with scratch() as folder:
        receipt = read_receipt(root, key, folder)
        assert receipt.shard == shard
        rows = [row for batch in receipt.rows() for row in batch.to_pylist()]
        (samples,) = receipt.samples()
    assert [(row["key"], row["length"], row["bad"]) for row in rows] == [
        ("1/good", 512, None),
        ("1/bad0", None, "x" * 300),
    ]
    assert rows[1]["parts"] == [
        {"ext": "jpg", "source": "bad.jpg", "etag": "f", "offset": None, "length": 9, "crc32c": 0}
    ]
    assert samples.column("key").to_pylist() == ["1/good"]


def test_shards_are_found_by_listings_alone(root):
    for number in (1, 2, 4, 5, 7):
        put_shard(root, number)
    root.delete(layout.shard_key("s", "train", name(4)))
    root.put(layout.shard_key("s", "train", name(6)), b"of a run that was killed")
    put_shard(root, 8, b"")  # all of its samples were left out
    root.forget()
    finished = finished_shards(root, JOB, plans(2, 3, 4, 5, 6, 8), QUIET)
    assert numbers(finished) == [2, 5, 8]
    assert [shard.bytes for shard in finished] == [5, 5, 0]
    assert {call.method for call in root.calls} == {"list"}


def test_only_what_is_between_the_first_and_the_last_shard_is_listed(root):
    for number in range(1, 8):
        put_shard(root, number)
    listed = list_shards(root, JOB, plans(3, 4))
    assert [len(shard.receipts) for shard in listed] == [1, 1]
    lists = [call for call in root.calls if call.method == "list"]
    assert len(lists) == 2


def test_a_shard_that_was_written_again_with_the_same_bytes_gets_a_receipt(root):
    put_shard(root, 1, b"right")
    put_shard(root, 2, b"right")
    for number, data in ((1, b"right"), (2, b"wrong")):
        root.delete(layout.shard_key("s", "train", name(number)))
        root.put(layout.shard_key("s", "train", name(number)), data)
    before = keys_of(root, RECEIPTS)
    assert numbers(finished_shards(root, JOB, plans(1, 2), QUIET)) == [1]
    if root.features.local_path:  # in memory, an etag is of the content
        assert len(keys_of(root, RECEIPTS)) == len(before) + 1
    root.forget()
    (first, second) = list_shards(root, JOB, plans(1, 2))
    assert first.receipt
    assert not second.receipt


def test_of_several_receipts_the_one_of_the_objects_counts(root):
    put_shard(root, 1, b"first")
    put_shard(root, 1, b"other")
    put_shard(root, 2, b"first")
    receipts = dict(planned_receipts(root, JOB, plans(1, 2)))
    found = {plan.index: receipt.shard.files[0].sha256 for plan, receipt in receipts.items()}
    assert found == {
        1: hashlib.sha256(b"other").hexdigest(),
        2: hashlib.sha256(b"first").hexdigest(),
    }


def test_a_shard_without_a_receipt_is_named(root):
    put_shard(root, 1)
    with larder_error("run.failed") as caught:
        list(planned_receipts(root, JOB, plans(1, 2, 3)))
    assert name(2) in caught.value.message


@pytest.mark.parametrize("root", ["memory"], indirect=True)
def test_a_damaged_receipt_is_named(root):
    """At any place: in its rows, or in what it says of the shard."""
    put_shard(root, 1)
    (key,) = keys_of(root, RECEIPTS)
    data = bytes(root.get(key))
    accepted = 0
    for place in range(0, len(data), STEP):
        root.put(key, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            for _, receipt in planned_receipts(root, JOB, plans(1)):
                rows = [row for batch in receipt.rows() for row in batch.to_pylist()]
                assert [row["key"] for row in rows] == ["1/good", "1/bad0"]
                accepted += 1
        except DamageError:
            continue
    assert accepted < len(data) / STEP / 2  # what no reader looks at, such as statistics


@pytest.mark.push
def test_what_receipts_say_of_shards_does_not_stay_in_memory(tmp_path):
    root = open_store(f"memory://{uuid.uuid4().hex}/")
    for number in range(120):
        put_shard(root, number, skipped=20)

    def peak_bytes(count: int) -> int:
        tracemalloc.start()
        for _, receipt in planned_receipts(root, JOB, plans(*range(count))):
            assert receipt.shard.samples == 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak_bytes(2)
    assert peak_bytes(120) < peak_bytes(40) + 300_000
