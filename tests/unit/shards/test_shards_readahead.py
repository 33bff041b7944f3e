"""Reading ahead, and writing behind: in order, within bounds, ended by any error."""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from larder.errors import StoreError
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.readahead import Reads, lots, open_reads, read_ahead, suited_concurrency
from larder.store import ObjectInfo, open_store
from larder.store.base import Buffer
from tests.support.budgets import WatchedBudget
from tests.support.memory import forget


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_the_budget_is_never_exceeded_and_is_released(executor):
    budget = WatchedBudget(100)
    reads = Reads(executor, 16, budget)
    sizes = [30, 30, 30, 30, 99, 1, 100, 500, 7, 60, 60] * 5
    found = [item for item, _ in read_ahead(sizes, lambda size: size, lambda size: size, reads)]
    assert found == sizes
    assert budget.most <= 100
    assert budget.held == 0


def test_shards_that_share_a_budget_do_not_block_each_other(executor):
    budget = WatchedBudget(10)
    reads = Reads(executor, 8, budget)

    def consume(_: int) -> int:
        return sum(1 for _ in read_ahead([9, 3, 3, 3, 10] * 40, lambda s: s, lambda s: s, reads))

    with ThreadPoolExecutor(6) as shards:
        assert list(shards.map(consume, range(6))) == [200] * 6
    assert budget.most <= 10
    assert budget.held == 0


def test_a_consumer_that_stops_cancels_pending_reads():
    budget = WatchedBudget(100)
    go_on = threading.Event()
    begun: list[int] = []

    def read(item: int) -> int:
        begun.append(item)
        if item:
            assert go_on.wait(60)
        return item

    with ThreadPoolExecutor(2) as threads:
        ahead = read_ahead(range(50), read, lambda _: 1, Reads(threads, 20, budget))
        assert next(ahead) == (0, 0)
        ahead.close()
        go_on.set()
    assert set(begun) <= {0, 1, 2, 3}
    assert budget.held == 0


def test_one_read_at_a_time_stays_in_the_callers_thread():
    with open_reads(1, 800) as reads:
        threads = {
            thread
            for _, thread in read_ahead([1, 2], lambda _: threading.get_ident(), lambda _: 1, reads)
        }
        assert reads.whole_bytes == 100
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("parts", [1, 500, 20_000])
def test_windows_of_samples_with_many_parts_are_short(parts):
    part = Part("x", "x", 1, "")
    samples = [PlannedSample("train", str(n), None, (part,) * parts) for n in range(300)]
    divided = list(lots(samples, 1 << 20, together=True))
    assert [sample for lot in divided for sample in lot.samples] == samples
    assert max(len(lot.window) for lot in divided) == {1: 256, 500: 16, 20_000: 1}[parts]
    for lot in divided:
        assert lot.window[lot.first : lot.first + len(lot.samples)] == lot.samples


def test_images_are_decoded_on_the_cores_that_the_process_may_use():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert suited_concurrency(open_store("/nowhere"), "decode", 32) == 1
    finally:
        os.sched_setaffinity(0, cores)


MIB = 1 << 20


class Broken:
    """A writer whose disk is full from the second block on."""

    def __init__(self) -> None:
        self.blocks = 0

    def write(self, data: Buffer) -> None:
        self.blocks += 1
        if self.blocks > 1:
            raise StoreError("store.full", "no space is left")

    def commit(self) -> ObjectInfo:
        raise AssertionError("never committed")

    def abort(self) -> None: ...

    def __enter__(self) -> "Broken":
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [MIB], [MIB - 1, 1, 1], [MIB + 1], [17 * MIB + 5, 3], [MIB] * 30, [1000] * 20_000],
)
@pytest.mark.parametrize("beside", [True, False])
def test_pieces_come_out_joined_and_hashed(sizes, beside):
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    store = open_store("memory://shards-output")
    with store.writer("x") as writer, HashedOutput(writer, beside=beside) as output:
        for first in range(0, len(pieces), 3):
            some = pieces[first : first + 3]
            output.append(some, sum(map(len, some)))
        assert output.bytes == sum(sizes)
        digest = output.finish()
        writer.commit()
    data = store.get("x")
    forget("shards-output")
    assert data == b"".join(pieces)
    assert digest == hashlib.sha256(data).hexdigest()


def test_an_error_of_the_writer_comes_out():
    with HashedOutput(Broken()) as output:
        output.append([bytes(2 * MIB)], 2 * MIB)
        with pytest.raises(StoreError):
            output.finish()


@pytest.mark.parametrize("beside", [True, False])
def test_an_error_of_the_writer_stops_the_caller(beside):
    piece, before = bytes(40 * MIB), {*threading.enumerate()}
    with HashedOutput(Broken(), beside=beside) as output, pytest.raises(StoreError):
        output.append([piece], len(piece))
    assert before.issuperset(threading.enumerate()), "its threads have ended"
