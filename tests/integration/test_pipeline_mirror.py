"""A mirror that is interrupted: how little of it the next run copies again."""

import threading
from functools import partial
from typing import Any

import pytest
from pipeline_lab import directory_lab, opened, png

from larder.copy import copy_job
from larder.copy.receipts import find_receipts
from larder.copy.record import read_record, record_rows
from larder.errors import FatalError
from larder.jobs import runner
from larder.progress import CancellableProgress, NullProgress
from larder.segments.mirror import PLACE
from tests.support.runs import between
from tests.support.stores import KeyStop, Stop, Stopped, StoppingStore

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


@pytest.mark.push
def test_an_interrupted_mirror_continues_where_it_stopped(tmp_path, monkeypatch):
    """All of it is one set, of which a receipt is left when it is stopped."""
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


@pytest.mark.push
def test_a_killed_mirror_repeats_no_more_than_the_sets_in_progress(tmp_path, monkeypatch):
    size_bytes = sum(map(len, OBJECTS.values())) / len(OBJECTS)
    monkeypatch.setattr(copy_job, "SET_BYTES", int(5 * size_bytes))
    for after in (25, 40, 60):
        lab = directory_lab(tmp_path / str(after), OBJECTS, **ONE_BATCH)
        stop = Stop(after)
        with between(partial(StoppingStore, stop=stop)), pytest.raises(Stopped):
            lab.prepare()
        missing = len(OBJECTS) - len(mirrored(lab.root))
        document = lab.prepare()
        repeated = document["copied"]["count"] - missing
        assert 0 <= repeated <= CONCURRENCY * 6
        lab.check()


@pytest.mark.push
def test_what_a_killed_run_has_copied_is_recorded_by_the_next(tmp_path):
    """Which itself has nothing to copy."""
    lab = directory_lab(tmp_path, OBJECTS, **ONE_BATCH)
    assert lab.stopped(KeyStop("copy.json")) is None
    with opened(lab.root) as root:
        assert find_receipts(root, PLACE)
        assert lab.prepare()["copied"]["count"] == 0
        assert not find_receipts(root, PLACE)
        rows = record_rows(root, PLACE, read_record(root, PLACE))
        assert sum(batch.num_rows for batch in rows) == len(OBJECTS)
    lab.check()
