import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.bounds import ByteBudget, map_ahead, map_done


@given(st.lists(st.integers(0, 150), max_size=40))
def test_the_budget_is_never_exceeded_and_nothing_waits_for_ever(sizes):
    budget = ByteBudget(100)
    lock, held, most = threading.Lock(), 0, 0

    def hold(size_bytes: int) -> None:
        nonlocal held, most
        with budget.holding(size_bytes):
            with lock:
                held += min(size_bytes, 100)
                most = max(most, held)
            with lock:
                held -= min(size_bytes, 100)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, sizes))
    assert most <= 100
    assert held == 0


def test_an_error_releases_the_bytes():
    budget = ByteBudget(10)
    with pytest.raises(KeyError), budget.holding(10):
        raise KeyError
    with budget.holding(10):
        pass


def test_map_ahead_keeps_the_order_and_the_window():
    taken: list[int] = []

    def items() -> object:
        for item in range(20):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(4) as pool:
        results = map_ahead(pool, lambda item: item * 2, items(), window=5)  # type: ignore[arg-type]
        assert next(results) == 0
        assert len(taken) == 5
        assert list(results) == [item * 2 for item in range(1, 20)]


def test_map_ahead_raises_in_turn_and_cancels_the_rest():
    release = threading.Event()
    begun: list[int] = []

    def fail(item: int) -> int:
        begun.append(item)
        if item == 0:
            raise ValueError("first")
        release.wait()
        return item

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError, match="first"):
            list(map_ahead(pool, fail, range(50), window=10))
        release.set()
    assert len(begun) < 10


def test_map_done_yields_what_ends_first_within_the_window():
    release = threading.Event()
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    def slow_first(item: int) -> int:
        if item == 0:
            assert release.wait(60)
        return item

    found = []
    with ThreadPoolExecutor(2) as pool:
        for item in map_done(pool, slow_first, items(), window=5, wake_seconds=60):
            found.append(item)
            assert len(taken) - len(found) <= 5
            if len(found) == 19:
                release.set()
    assert found == [*range(1, 20), 0]


def test_map_done_wakes_while_nothing_ends():
    release = threading.Event()

    def wait(item: int) -> int:
        assert release.wait(60)
        return item

    woken = 0
    with ThreadPoolExecutor(1) as pool:
        for item in map_done(pool, wait, [7], window=1, wake_seconds=0.001):
            woken += item is None
            if woken == 3:
                release.set()
    assert woken >= 3
    assert item == 7


def test_map_done_raises_at_once_and_cancels_the_rest():
    begun: list[int] = []
    release = threading.Event()

    def fail(item: int) -> int:
        begun.append(item)
        if item == 1:
            raise ValueError("second")
        assert release.wait(60)
        return item

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(ValueError, match="second"):
            list(map_done(pool, fail, range(50), window=10, wake_seconds=60))
        release.set()
    assert len(begun) < 10
