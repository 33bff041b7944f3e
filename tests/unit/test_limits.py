import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.budgets import ByteBudget, map_ahead


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
