"""Reading ahead: in order, within the bounds, and ended by whatever ends the consumer."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from larder.shards.reading.readahead import Reads, open_reads, read_ahead, suited_concurrency
from larder.store import open_store
from tests.support.budgets import WatchedBudget


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


def test_images_are_decoded_on_the_cores_that_the_process_may_use():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert suited_concurrency(open_store("/nowhere"), "decode", 32) == 1
    finally:
        os.sched_setaffinity(0, cores)
