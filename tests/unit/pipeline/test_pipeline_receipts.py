"""Receipts of batches: which are written, and which are read."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import islice

import pytest

from larder.jobs import batch_receipts
from larder.pipeline.finished import finished_sizes
from larder.pipeline.receipts import ShardReceipts, read_receipts
from larder.progress import NullProgress
from larder.shards.model import NO_ROWS, ShardFile, ShardResult
from larder.store import open_store
from larder.store.base import Store
from larder.versions import layout
from tests.support.stores import RecordingStore

FIRST, SECOND = "000000000000-3", "000000000003-3"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> RecordingStore:
    """Every shard makes a receipt fall due."""
    monkeypatch.setattr(batch_receipts, "RECEIPT_BYTES", 1)
    return RecordingStore(open_store(f"memory://{uuid.uuid4().hex}/"))


def keys(root: Store, prefix: str) -> list[str]:
    return [info.key for page in root.list(prefix) for info in page]


def shards(root: Store, batch: str, numbers: Iterable[int], count: int = 3) -> None:
    """Leave receipts of a batch of so many shards, of which these are finished."""
    with ShardReceipts(root, "s", batch, count=count) as receipts:
        for number in numbers:
            name = f"d-train-{number:06d}.tar"
            etag = root.put(layout.shard_key("s", "train", name), b"shard").etag
            file = ShardFile(name, 5, "0" * 64, etag)
            receipts.add(ShardResult("train", name, (file,), NO_ROWS))


def read_keys(root: RecordingStore) -> list[str]:
    return [call.key for call in root.calls if call.method in ("get", "open")]


def test_the_last_of_a_batch_leaves_no_partial_receipt(
    root: RecordingStore,
) -> None:
    """The receipt of the whole batch comes at once."""
    shards(root, FIRST, range(3))
    left = [key for key in keys(root, layout.partial_shards_prefix("s")) if key.endswith(".json")]
    assert len(left) == 2
    assert f"{layout.shards_work_prefix('s')}{FIRST}.json" in keys(root, "segments/")


def test_a_batch_that_is_not_finished_leaves_partial_receipts_of_all_it_did(
    root: RecordingStore,
) -> None:
    shards(root, FIRST, range(2))
    assert {shard.name for one in read_receipts(root, "s") for shard in one.shards} == {
        "d-train-000000.tar",
        "d-train-000001.tar",
    }
    assert not [key for key in keys(root, "segments/") if key.endswith(f"/{FIRST}.json")]


def test_partial_receipts_of_a_finished_batch_of_shards_are_not_read(root: RecordingStore) -> None:
    shards(root, FIRST, range(3))
    shards(root, SECOND, [3, 4])
    root.forget()
    found = list(read_receipts(root, "s"))
    assert [len(receipt.shards) for receipt in found] == [3, 1, 1]
    assert not [key for key in read_keys(root) if f"partial/{FIRST}" in key]


def test_only_requested_ranges_are_read(root: RecordingStore) -> None:
    shards(root, FIRST, range(3))
    shards(root, SECOND, range(3, 6))
    root.forget()
    assert len(list(islice(read_receipts(root, "s"), 2))) == 2
    assert len(read_keys(root)) == 2


def test_when_all_planned_shards_are_found_no_further_receipt_is_read(root: RecordingStore) -> None:
    shards(root, FIRST, range(3))
    shards(root, SECOND, [1])  # of a run that was cut off
    root.forget()
    wanted = [("train", f"d-train-{number:06d}.tar") for number in range(3)]
    assert finished_sizes(root, "s", wanted, NullProgress()).keys() == set(wanted)
    assert read_keys(root) == [f"{layout.shards_work_prefix('s')}{FIRST}.json"]
