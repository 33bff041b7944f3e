"""A step that waits to write at ``copy.max_bytes_per_second`` ends when its run is stopped."""

from __future__ import annotations

import io
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from larder.copy.copy_place import CopyPlace, Origin
from larder.copy.copy_receipts import CopySets, find_receipts
from larder.copy.proof import CopiedObject
from larder.jobs import processes
from larder.jobs.crew import Crew
from larder.jobs.step_runner import InlineRunner
from larder.progress import CancellableProgress, NullProgress, Progress, StageTimes
from larder.store import open_store
from larder.store.base import ObjectInfo
from larder.store.interrupt import Interrupt, interrupted_by, stopping_waits
from tests.support.errors import larder_error

STOPS: list[Event] = []
"""What stops the run that the step is of: a process gets only its name."""

YEAR_BYTES = 30_000_000


def step(folder: Path, kind: str, progress: Progress) -> None:
    """Stop the run, then write so much that the limit would make it take a year."""
    STOPS[-1].set()
    store = open_store(str(folder), max_bytes_per_second=1)
    if kind == "put":
        store.put("key", bytes(YEAR_BYTES))
    else:
        with store.writer("key") as writer:
            writer.write(bytes(YEAR_BYTES))


def inline(stop: Event, *arguments: Any) -> None:
    InlineRunner(1, StageTimes(), stop).run(step, *arguments)


def in_batch(stop: Event, folder: Path, kind: str) -> None:
    InlineRunner(1, StageTimes(), stop).map(step_of_batch, folder, [kind])


def step_of_batch(folder: Path, kind: str, progress: Progress, concurrent_batches: int = 1) -> None:
    step(folder, kind, progress)


def in_task(stop: Event, *arguments: Any) -> None:
    with closing(Crew(1)) as crew:
        crew.run(step, *arguments, progress=CancellableProgress(NullProgress(), stop))


def in_process(stop: Event, *arguments: Any) -> None:
    call = processes._FunctionCall(f"{__name__}:step", arguments, {}, "shard")
    answer = processes._answer(call, io.BytesIO(), stop)
    raise answer.error()


@pytest.mark.parametrize("run", [inline, in_batch, in_task, in_process])
@pytest.mark.parametrize("kind", ["put", "writer"])
@pytest.mark.timeout(20)
def test_a_throttled_write_ends_when_the_run_is_stopped(tmp_path, run, kind):
    STOPS.append(Event())
    with larder_error("run.interrupted"):
        run(STOPS[-1], tmp_path, kind)
    assert not list(tmp_path.rglob("key"))


def test_what_was_copied_before_the_stop_has_its_receipt(tmp_path):
    store = open_store(str(tmp_path / "root"), max_bytes_per_second=20_000)
    place = CopyPlace(Origin("s3://source/"))
    progress = CancellableProgress(NullProgress(), stop := Event())
    sets = CopySets(store, f"{place.receipts}run-", tmp_path)
    with larder_error("run.interrupted"), stopping_waits(progress), sets:
        for info in sets.divide([ObjectInfo("a", 1, "e", 0)], 0):
            sets.copied(CopiedObject(info.key, 1, "e", 7, None, "m", "md5"))
        stop.set()
        progress.check()
    assert len(find_receipts(store, place, "run")) == 1


def test_an_inner_signal_ends_with_its_block_and_the_outer_one_with_its_own():
    outer, inner = Interrupt(), Interrupt()
    with outer.active():
        with suppress(KeyError), inner.active():
            assert interrupted_by() is inner
            raise KeyError
        assert interrupted_by() is outer
    assert interrupted_by() is None
