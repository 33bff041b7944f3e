"""A mirror that is interrupted: how little of it the next run copies again."""

from __future__ import annotations

import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import directory_lab, opened, png

from larder.copy import engine
from larder.copy.copy_limits import CopyLimits
from larder.copy.engine import copy_batch
from larder.errors import FatalError, RetryableError
from larder.jobs import batch_receipts, runner
from larder.limits import ByteBudget
from larder.pipeline.copy_receipts import CopyReceipts
from larder.progress import CancellableProgress, NullProgress
from larder.store import open_store
from larder.store.base import Reader, Store
from tests.support.runs import between
from tests.support.stores import (
    FaultyStore,
    RecordingStore,
    Stop,
    Stopped,
    StoppingStore,
    unavailable,
)

OBJECTS = {f"{name}/{number:02}.png": png(number) for name in "ab" for number in range(30)}
CONCURRENCY = 2
ONE_BATCH: dict[str, Any] = {
    "cluster": {"runner": {"workers": 1}, "copy": {"concurrency": CONCURRENCY}},
    "cache": None,
    "mirror": True,
}


def stop_once(monkeypatch: pytest.MonkeyPatch, objects: int) -> None:
    """Let batches be stopped, as by Ctrl-C, once so many objects of the mirror are done."""
    stop = threading.Event()
    done = 0

    class Counting(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            nonlocal done
            done += objects * (stage == "mirror")
            if done >= least:
                stop.set()

    least = objects
    inner = Counting()
    monkeypatch.setattr(runner, "CancellableProgress", lambda *_: CancellableProgress(inner, stop))


def mirrored(root: str) -> set[str]:
    with opened(root) as store:
        return {info.key for page in store.list("mirror/") for info in page}


def test_an_interrupted_mirror_continues_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is one batch, which leaves its receipt when it is stopped."""
    lab = directory_lab(tmp_path, OBJECTS, **ONE_BATCH)
    with monkeypatch.context() as patched:
        stop_once(patched, 20)
        with pytest.raises(FatalError) as caught:
            lab.prepare()
    assert caught.value.code == "run.interrupted"
    missing = len(OBJECTS) - len(mirrored(lab.root))
    assert 0 < missing <= len(OBJECTS) - 20
    document = lab.prepare()
    # What was being written when the batch was stopped is in no receipt.
    assert missing <= document["copied"]["count"] <= missing + CONCURRENCY
    lab.check()


@pytest.mark.exhaustive
def test_a_killed_mirror_repeats_no_more_than_one_receipt_covers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = sum(map(len, OBJECTS.values())) / len(OBJECTS)
    monkeypatch.setattr(batch_receipts, "RECEIPT_BYTES", int(5 * size_bytes))
    for after in (25, 40, 60):
        lab = directory_lab(tmp_path / str(after), OBJECTS, **ONE_BATCH)
        stop = Stop(after)
        with between(partial(StoppingStore, stop=stop)), pytest.raises(Stopped):
            lab.prepare()
        missing = len(OBJECTS) - len(mirrored(lab.root))
        document = lab.prepare()
        repeated = document["copied"]["count"] - missing
        # Five and a bit, two in progress, and eight that were done while a receipt was written.
        assert 0 <= repeated <= 6 + CONCURRENCY + 8
        lab.check()


class Waiting(RecordingStore):
    """A source that keeps the reader of one object waiting until it may continue."""

    def __init__(self, inner: Store, key: str) -> None:
        super().__init__(inner)
        self.key = key
        self.go_on = threading.Event()

    def open(self, key: str, **options: Any) -> Reader:
        if key == self.key:
            assert self.go_on.wait(60), "no receipt was left meanwhile"
        return super().open(key, **options)


@pytest.fixture
def stores() -> tuple[Store, Store]:
    name = uuid.uuid4().hex
    source, root = open_store(f"memory://{name}-source"), open_store(f"memory://{name}")
    return source, root


def test_a_receipt_falls_due_by_time_while_a_large_object_is_copied(
    tmp_path: Path, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, root = stores
    infos = [inner.put(key, key.encode()) for key in ("a", "b", "large")]
    source = Waiting(inner, "large")
    now = 0.0

    def awake() -> None:
        nonlocal now
        now += 3.0
        receipts.leave_if_due()
        if any(root.list("work/mirror/partial/")):
            source.go_on.set()

    monkeypatch.setattr(engine, "WAKE_SECONDS", 0.001)
    with CopyReceipts(root, "0", tmp_path, count=3, clock=lambda: now) as receipts:
        copy_batch(
            source,
            root,
            infos,
            prefix="mirror/",
            limits=CopyLimits(3, ByteBudget(1000)),
            progress=NullProgress(),
            copied=receipts.add,
            awake=awake,
        )
    keys = [info.key for page in root.list("work/mirror/") for info in page]
    assert len(keys) == 2, "one of the two small objects, one of the whole batch"


def test_a_receipt_that_could_not_be_left_is_left_at_the_end(
    tmp_path: Path, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that fails for a while, in the middle of a batch."""
    monkeypatch.setattr(batch_receipts, "RECEIPT_BYTES", 1)
    source, inner = stores
    root = FaultyStore(inner)
    root.add("upload", unavailable())
    with pytest.raises(RetryableError), CopyReceipts(root, "0", tmp_path, count=2) as receipts:
        copy_batch(
            source,
            root,
            [source.put(key, key.encode()) for key in ("a", "b")],
            prefix="mirror/",
            limits=CopyLimits(1, ByteBudget(1000)),
            progress=NullProgress(),
            copied=receipts.add,
            awake=receipts.leave_if_due,
        )
    (page,) = inner.list("work/mirror/partial/")
    assert len(page) == 1
