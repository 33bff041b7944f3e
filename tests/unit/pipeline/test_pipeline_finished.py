"""The finished shards of a segment, from the receipts, in the order of the plan."""

from __future__ import annotations

import tracemalloc
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from larder.errors import Failure, FatalError
from larder.jobs.manifests import put_named
from larder.manifest.files import write_manifest
from larder.pipeline.finished import finished_shards
from larder.pipeline.job import Job
from larder.pipeline.pack import SHARD_PLAN
from larder.pipeline.receipts import ShardReceipts
from larder.shards.model import NO_ROWS, ShardFile, ShardResult
from larder.store import open_store
from larder.store.base import Store
from larder.versions import layout


@pytest.fixture
def root() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/")


def name(number: int) -> str:
    return f"d-train-{number:06d}.tar"


def job(root: Store, folder: Path, numbers: Sequence[int]) -> Job:
    """A job whose plan has these shards of split ``train``."""
    count = len(numbers)
    columns = [["train"] * count, numbers, [*map(name, numbers)], [0] * count, [1] * count]
    rows = pa.record_batch([*columns, [5] * count], schema=SHARD_PLAN)
    file = write_manifest(folder / "plan.parquet", SHARD_PLAN, [rows])
    ref = put_named(root, f"plan-{count}.parquet", file)
    return cast("Job", SimpleNamespace(segment="s", shard_plan=ref))


def leave(root: Store, batch: str, numbers: Sequence[int], **more: Any) -> None:
    """Write shards, and a receipt for them."""
    with ShardReceipts(root, "s", batch, count=len(numbers)) as receipts:
        for number in numbers:
            etag = root.put(layout.shard_key("s", "train", name(number)), batch.encode()).etag
            file = ShardFile(name(number), len(batch), batch[0] * 64, etag)
            receipts.add(ShardResult("train", name(number), (file,), NO_ROWS, **more))


def test_they_come_in_the_order_of_the_plan_with_the_receipt_that_matches(
    root: Store, tmp_path: Path
) -> None:
    leave(root, "a000-2", [3, 1])
    leave(root, "b000-3", [4, 2, 1])  # another run has written shard 1 again
    leave(root, "c000-1", [9])  # of another plan
    found = finished_shards(root, job(root, tmp_path, [1, 2, 3, 4]))
    for _ in range(2):
        rows = [(one.index, one.shard.name, one.shard.files[0].sha256[0]) for one in found]
        assert rows == [(1, name(1), "b"), (2, name(2), "b"), (3, name(3), "a"), (4, name(4), "b")]
    assert {one.rows.rows for one in found} == {0}


def test_a_shard_without_a_receipt_is_named(root: Store, tmp_path: Path) -> None:
    leave(root, "a000-1", [1])
    with pytest.raises(FatalError, match="2 shards without a receipt, such as d-train-000002"):
        finished_shards(root, job(root, tmp_path, [1, 2, 3]))


def test_what_receipts_say_of_shards_does_not_stay_in_memory(root: Store, tmp_path: Path) -> None:
    """With ten messages of bad samples for each, which are some kilobytes."""
    omitted = tuple(Failure(f"{n}.jpg", "sample.undecodable", "x" * 300, 1) for n in range(10))

    def held_bytes(count: int) -> int:
        asked = job(root, tmp_path, range(count))
        tracemalloc.start()
        found = finished_shards(root, asked)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert sum(one.shard.omitted_count for one in found) == 10 * count
        return held

    for first in range(0, 600, 10):
        leave(root, f"a{first:06d}-10", range(first, first + 10), omitted=omitted, omitted_count=10)
    assert held_bytes(600) < held_bytes(200) + 400_000
