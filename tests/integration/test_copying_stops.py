"""Copies and prunes that are stopped at any write, and the runs after them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from copy_lab import PLACE, CopyLab, calls, contents, lab_of
from costs_lab import blob
from pipeline_lab import opened, write
from required import nightly

from larder.copy import copy_job
from larder.copy.copy_record import read_record
from larder.copy.pruning import PruneSettings, prune
from larder.jobs.step_runner import InlineRunner
from larder.progress import StageTimes
from tests.support.runs import between, forget_manifests
from tests.support.stores import Meanwhile, MeanwhileStore, Stop, Stopped, StoppingStore

pytestmark = pytest.mark.push

STEP = 1 if nightly() else 7
"""Writes from one after which a run is stopped to the next."""

OBJECTS = {
    f"{name}/{number:02}.bin": blob(f"{name}{number}", 30) for name in "ab" for number in range(9)
}
CHANGED = {"a/03.bin": blob("other", 30), "c/new.bin": b"new"}
LIMITS: dict[str, Any] = {
    "settings": ("runner.batch_bytes=270", "runner.workers=1", "copy.concurrency=1")
}


@pytest.fixture(params=["buckets", "directories"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], CopyLab]]:
    """Makes labs of one kind; two objects are a set."""
    monkeypatch.setattr(copy_job, "SET_BYTES", 60)
    folders = (tmp_path / str(number) for number in count())
    with ExitStack() as stack:
        yield lambda: stack.enter_context(lab_of(request.param, next(folders), OBJECTS, **LIMITS))


def change(lab: CopyLab) -> None:
    lab.copy()
    lab.add(CHANGED)
    lab.remove("b/05.bin")


def copied(lab: CopyLab) -> Any:
    return lab.copy()


def pruned(lab: CopyLab) -> Any:
    forget_manifests()
    return prune(PruneSettings(lab.settings(), 3), InlineRunner(1, StageTimes()))


SCENES: dict[str, tuple[Callable[[CopyLab], None], Callable[[CopyLab], Any]]] = {
    "change": (change, copied),
    "first copy": (lambda _lab: None, copied),
    "prune": (change, pruned),
}


def stopped(lab: CopyLab, run: Callable[[CopyLab], Any], after: int | None) -> Stop:
    stop = Stop(after)
    with between(lambda store: StoppingStore(store, stop)):
        try:
            run(lab)
        except Stopped:
            assert after is not None
    return stop


@pytest.mark.parametrize("scene", SCENES)
def test_after_a_stop_at_any_write_the_next_run_does_the_rest(make, scene):
    before, run = SCENES[scene]
    whole = make()
    before(whole)
    writes = stopped(whole, run, None).writes
    assert len(writes) >= 5
    for after in sorted({*range(0, len(writes), STEP), len(writes) - 1}):
        lab = make()
        before(lab)
        stopped(lab, run, after)
        where = f"stopped at {writes[after]}"
        there = lab.there() if after or scene != "first copy" else {}
        source = contents(lab.source)
        made = {key for key, data in source.items() if there.get(key) == data}
        done, reads, _ = calls(lab, lab.copy)
        assert lab.there().items() >= source.items(), where
        again = {call.key for call in reads if call.method in ("get", "open", "copy_from")}
        # Those of a set whose receipt was to be written, and the one after them.
        assert len(again & made) <= 3, where
        assert sum(done["checks"].values()) >= len(source), where
        assert not [key for key in lab.own() if "/receipts/" in key], where
        pruned(lab)
        assert lab.there() == source, where
        idle, reads, storage = calls(lab, lab.copy)
        assert idle["status"] == "current", where
        assert {call.method for call in reads} == {"list"}, where
        assert not {call.method for call in storage} & {"put", "upload", "delete"}, where
        lab.add({"z/last.bin": b"last"})
        assert lab.copy()["copied"]["count"] == 1, where


def test_a_copy_that_ends_while_another_runs_is_not_forgotten(make):
    """Both write the record: the later one keeps what only the earlier one copied."""
    lab = make()
    meanwhile = Meanwhile()

    def other() -> None:
        lab.add({"z/late.bin": b"late"})
        lab.copy()

    meanwhile.before("put", PLACE.document, other)
    with between(lambda store: MeanwhileStore(store, meanwhile)):
        lab.copy()
    assert not meanwhile.waiting
    assert lab.there() == contents(lab.source)
    final = lab.copy()
    assert lab.copy()["status"] == "current"
    assert final["objects"]["count"] == len(OBJECTS) + 1
    with opened(lab.storage) as root:
        assert read_record(root, PLACE) is not None


def test_a_manifest_that_two_runs_share_is_not_lost_if_one_is_replaced(make):
    """Two runs wrote one manifest; a third replaces the record of the first, and deletes it."""
    for method, key in (("put", PLACE.document), ("delete", "/manifest-")):
        lab = make()
        lab.copy()
        with opened(lab.storage) as root:
            record = root.get(PLACE.document)
        lab.add({"z/late.bin": b"late"})
        meanwhile = Meanwhile()

        def deleted(lab: CopyLab = lab) -> None:
            with opened(lab.storage) as root:
                for name in lab.own():
                    if "/manifest-" in name:
                        root.delete(name)

        def named_again(lab: CopyLab = lab, record: bytes = record) -> None:
            with opened(lab.storage) as root:
                root.put(PLACE.document, record)

        meanwhile.before(method, key, deleted if method == "put" else named_again)
        with between(lambda store, meanwhile=meanwhile: MeanwhileStore(store, meanwhile)):
            lab.copy()
        assert not meanwhile.waiting
        assert lab.copy()["status"] == "current"
        assert lab.there() == contents(lab.source)


def test_another_state_of_the_source_after_a_stop_is_followed(make):
    whole = make()
    writes = stopped(whole, copied, None).writes
    for after in range(1, len(writes), STEP):
        lab = make()
        stopped(lab, copied, after)
        write(lab.source, CHANGED)
        lab.remove("b/05.bin")
        lab.copy()
        source = contents(lab.source)
        assert lab.there().items() >= source.items()
        assert lab.there().keys() - source.keys() <= {"b/05.bin"}
        assert lab.copy()["status"] == "current"
