"""A large file is read in ranges by threads, and is what was published, or absent."""

import gc
import hashlib
import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from larder.errors import ObjectError
from larder.store import download as module
from larder.store.base import Store
from larder.store.download import download
from larder.store.interrupt import Interrupt, interrupted_by
from larder.store.retry import RetryPolicy, RetryStore
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget
from tests.support.stores import (
    BreakStream,
    FaultyStore,
    FlipBit,
    Meanwhile,
    MeanwhileStore,
    RecordingStore,
    unreadable,
)

DATA = hashlib.shake_256(b"ranges").digest(10_001)
RANGES = 6


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(module, "LARGE_BYTES", 9_999)
    monkeypatch.setattr(module, "_RANGE_BYTES", 2_000)


@pytest.fixture
def store():
    store = MemoryStore("ranges")
    store.put("file", DATA)
    yield store
    forget("ranges")


def fetch(store: Store, folder: Path, data: bytes = DATA, **options: Any) -> bytes:
    path = folder / "copy" / "file"
    path.parent.mkdir(parents=True)
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        download(store, "file", path, len(data), sha256, **options)
    finally:
        assert os.listdir(path.parent) == (["file"] if path.exists() else [])
    return path.read_bytes()


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_ranges_are_read_at_once(store, tmp_path, threads):
    together = threading.Barrier(min(threads, RANGES))
    meanwhile = Meanwhile()
    meanwhile.before("open", "file", together.wait, times=RANGES // threads * threads or RANGES)
    assert fetch(MeanwhileStore(store, meanwhile), tmp_path, threads=threads) == DATA
    assert not meanwhile.waiting


def test_ranges_that_arrive_in_another_order(store, tmp_path):
    """The first one is read when all others have been written."""
    first, opened = threading.Event(), []

    class Late(MemoryStore):
        def open(self, key: str, **options: Any) -> Any:
            if options["offset"]:
                opened.append(options["offset"])
                if len(opened) == RANGES - 1:
                    first.set()
            else:
                first.wait()
            return super().open(key, **options)

    assert fetch(Late("ranges"), tmp_path, threads=2) == DATA
    assert sorted(opened) == [*range(2_000, 10_001, 2_000)]


def test_the_end_of_the_program_does_not_wait_for_the_ranges(store, tmp_path):
    waited_for: list[bool] = []
    meanwhile = Meanwhile()
    meanwhile.before(
        "open", "file", lambda: waited_for.append(not threading.current_thread().daemon)
    )
    fetch(MeanwhileStore(store, meanwhile), tmp_path)
    assert waited_for == [False]


def test_one_stream_for_small_files_and_for_one_of_many(store, tmp_path):
    recording = RecordingStore(store)
    fetch(recording, tmp_path / "one", threads=1)
    small = DATA[:9_999]
    store.put("file", small)
    fetch(recording, tmp_path / "small", small)
    assert recording.count("open") == 2
    assert recording.count("head") == 0


def test_a_connection_that_breaks_is_continued(store, tmp_path):
    faulty = FaultyStore(store)
    for nth in (1, 3):
        faulty.add("open", BreakStream(700), nth=nth)
    patient = RetryStore(faulty, RetryPolicy(first_delay_seconds=0))
    assert fetch(patient, tmp_path) == DATA


def test_an_object_that_changes_between_ranges_is_refused(store, tmp_path):
    meanwhile = Meanwhile()
    meanwhile.before("open", "file", lambda: store.put("file", DATA[::-1]))
    with larder_error("damage.digest", "memory://ranges/file"):
        fetch(MeanwhileStore(store, meanwhile), tmp_path, threads=2)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (DATA[:-1], "damage.size"),
        (DATA + b"x", "damage.size"),
        (DATA[:7_000] + b"x" + DATA[7_001:], "damage.digest"),
    ],
)
def test_other_bytes_are_refused(store, tmp_path, other, code):
    store.put("file", other)
    with larder_error(code, "memory://ranges/file"):
        fetch(store, tmp_path)


def test_an_error_of_a_range_ends_all(store, tmp_path):
    faulty = FaultyStore(store)
    faulty.add("open", unreadable(), nth=3, times=None)
    before = set(threading.enumerate())  # those of other tests
    with larder_error("object.unreadable"):
        fetch(faulty, tmp_path / "a", threads=2)
    faulty.clear()
    faulty.add("open", FlipBit(1), nth=RANGES, times=None)
    with larder_error("damage.digest"):
        fetch(faulty, tmp_path / "b")
    assert before.issuperset(threading.enumerate())


def test_an_error_of_a_range_ends_the_requests_for_the_others(store, tmp_path):
    opened, ended = threading.Event(), list[bool]()

    class Slow(MemoryStore):
        def open(self, key: str, **options: Any) -> Any:
            if not options["offset"]:
                opened.wait()
                raise ObjectError("object.unreadable", "no")
            opened.set()
            interrupt = interrupted_by()
            try:
                interrupt.sleep(30)
            finally:
                ended.append(interrupt.stopped)

    with larder_error("object.unreadable"):
        fetch(Slow("ranges"), tmp_path, threads=2)
    assert ended
    assert all(ended)


def test_errors_of_ranges_leave_nothing_to_the_garbage_collector(store, tmp_path, request):
    gc.disable()
    request.addfinalizer(gc.enable)
    both, gone = threading.Barrier(2), threading.Event()

    class Failing(MemoryStore):
        def open(self, key: str, **options: Any) -> Any:
            if options["offset"] < 4_000:
                both.wait()
            raise ObjectError("object.unreadable", f"no {options}")

    failing = Failing("ranges")
    weakref.finalize(failing, gone.set)
    with suppress(ObjectError):
        fetch(failing, tmp_path, threads=2)
    del failing
    assert gone.is_set()


def test_an_interrupt_ends_all(store, tmp_path):
    interrupt, meanwhile = Interrupt(), Meanwhile()
    meanwhile.before("open", "file", interrupt.stop)
    with interrupt.active(), larder_error("run.interrupted"):
        fetch(MeanwhileStore(store, meanwhile), tmp_path, threads=2)
