"""Receipts of copies of many runs are merged: which, when, and what remains known."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from larder.copy.object import CopiedObject
from larder.errors import DamageError
from larder.pipeline.copy_receipts import (
    MAX_RUNS,
    MIRROR,
    CopyReceipts,
    find_receipts,
    merge_receipts,
    read_receipts,
)
from larder.store import open_store
from larder.store.base import ObjectInfo
from tests.support.runs import forget_manifests
from tests.support.stores import RecordingStore, Stop, Stopped, StoppingStore


@pytest.fixture
def root() -> RecordingStore:
    return RecordingStore(open_store(f"memory://{uuid.uuid4().hex}/"))


def leave(
    root: RecordingStore, folder: Path, run: int, keys: list[str], *, batch: int = 0, count: int = 0
) -> None:
    """The receipt of one batch of a run; a partial one if the batch has more objects."""
    name = f"{run:016x}-{batch:012d}-{len(keys)}"
    with CopyReceipts(root, name, folder, count=count or len(keys)) as receipts:
        for key in keys:
            receipts.add(row(key, run))


def row(key: str, run: int) -> CopiedObject:
    there = ObjectInfo(key, 1, f"source {run}", 1_000 + run)
    return CopiedObject.of(
        there, ObjectInfo(key, 1, f"copy {run}", 1_000 + run), f"crc32c:{run:08x}", "crc32c"
    )


def known(root: RecordingStore) -> dict[str, set[str]]:
    """By key, the etags of the copies that receipts are read of."""
    found: dict[str, set[str]] = {}
    for batch in read_receipts(root):
        for key, etag in zip(
            *(batch.column(name).to_pylist() for name in ("key", "mirror_etag")), strict=True
        ):
            found.setdefault(key, set()).add(etag)
    return found


def read_files(root: RecordingStore) -> int:
    forget_manifests()
    root.forget()
    known(root)
    return len([call for call in root.calls if call.method == "open"])


def test_receipts_of_few_runs_are_left_alone(root: RecordingStore, tmp_path: Path) -> None:
    for run in range(MAX_RUNS):
        leave(root, tmp_path, run, [f"{run}.bin"])
    root.forget()
    assert not merge_receipts(root)
    assert [call.method for call in root.calls] == ["list"]


def test_receipts_of_many_runs_are_merged(root: RecordingStore, tmp_path: Path) -> None:
    for run in range(MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin", "common.bin"])
    before = known(root)
    assert merge_receipts(root)
    assert not merge_receipts(root)
    last = f"copy {MAX_RUNS}"
    assert known(root) == {**before, "common.bin": {last}}
    assert read_files(root) == 1
    leave(root, tmp_path, 99, ["new.bin"])
    assert known(root)["new.bin"] == {"copy 99"}
    assert read_files(root) == 2


def test_receipts_of_one_run_are_left_alone_however_many(
    root: RecordingStore, tmp_path: Path
) -> None:
    for batch in range(3 * MAX_RUNS):
        leave(root, tmp_path, 0, [f"{batch:02}/{number}.bin" for number in range(99)], batch=batch)
    assert not merge_receipts(root)
    for run in range(1, MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin"])
    large = find_receipts(root).of_order[f"{0:016x}"]
    before = known(root)
    assert merge_receipts(root)
    found = find_receipts(root)
    assert found.of_order == {f"{0:016x}": large}
    assert len(found.merged) == 1
    assert known(root) == before


def test_merged_files_are_merged_again_while_they_are_small(
    root: RecordingStore, tmp_path: Path
) -> None:
    leave(root, tmp_path, 0, [f"{number:05}.bin" for number in range(20_000)])
    for run in range(1, 10 * MAX_RUNS):
        leave(root, tmp_path, run, [f"more {run}.bin"])
        merge_receipts(root)
        found = find_receipts(root)
        assert len(found.merged) <= 1
        assert len(found.merged) + len(found.of_order) <= MAX_RUNS
    assert len(known(root)) == 20_000 + 10 * MAX_RUNS - 1


def test_partial_receipts_are_merged_too(root: RecordingStore, tmp_path: Path) -> None:
    for run in range(MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin"], count=2)
    before = known(root)
    assert merge_receipts(root)
    assert read_files(root) == 1
    assert known(root) == before
    # The batch is finished after all: its receipt is another one.
    leave(root, tmp_path, 3, ["3.bin", "4.bin"])
    assert known(root)["4.bin"] == {"copy 3", "copy 4"}


def test_if_a_merged_file_is_lost_all_receipts_are_read(
    root: RecordingStore, tmp_path: Path
) -> None:
    for run in range(MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin"])
    before = known(root)
    merge_receipts(root)
    (file,) = find_receipts(root).merged
    root.delete(file.key)
    assert known(root) == before
    assert merge_receipts(root)
    assert known(root) == before
    assert read_files(root) == 1
    root.delete(MIRROR.merged_key)
    assert known(root) == before


def test_a_damaged_document_is_an_error(root: RecordingStore, tmp_path: Path) -> None:
    for run in range(MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin"])
    merge_receipts(root)
    root.put(MIRROR.merged_key, b"{}")
    with pytest.raises(DamageError) as caught:
        known(root)
    assert caught.value.where is not None
    assert caught.value.where.endswith("receipts.json")


@pytest.mark.parametrize("after", [0, 1])
def test_merging_that_is_stopped_loses_nothing(
    root: RecordingStore, tmp_path: Path, after: int
) -> None:
    for run in range(MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin"])
    before = known(root)
    with pytest.raises(Stopped):
        merge_receipts(StoppingStore(root.inner, Stop(after)))
    assert known(root) == before
    assert read_files(root) == MAX_RUNS + 1
    assert merge_receipts(root)
    assert known(root) == before
    assert read_files(root) == 1


def test_of_two_that_merge_at_once_either_result_is_whole(
    root: RecordingStore, tmp_path: Path
) -> None:
    """The document of the second one does not cover what only the first one knew."""
    for run in range(MAX_RUNS + 1):
        leave(root, tmp_path, run, [f"{run}.bin"])
    merge_receipts(root)
    document = bytes(root.get(MIRROR.merged_key))
    for run in range(20, 20 + MAX_RUNS):
        leave(root, tmp_path, run, [f"{run}.bin"])
    before = known(root)
    assert merge_receipts(root)
    root.put(MIRROR.merged_key, document)
    assert known(root) == before
