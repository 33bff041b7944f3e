"""Objects for which a store keeps failing: retried side by side, within one time for all."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from larder.budgets import ByteBudget
from larder.copy.allowance import CopyLimits
from larder.copy.engine import copy_batch
from larder.errors import Failure, RetryableError
from larder.progress import NullProgress
from larder.store import RetryPolicy, RetryStore, open_store
from larder.store.base import AHEAD, Buffer, Contents, Features, ObjectInfo, Reader, Store
from larder.store.delegate import DelegatingReader, DelegatingStore
from larder.store.interrupt import Interrupt

NUMBERS = [f"{number:02}" for number in range(12)]


class Failing(DelegatingStore):
    """Answers 503 for some objects; several requests may be in progress."""

    def __init__(self, inner: Store, failing: Iterable[str]) -> None:
        super().__init__(inner)
        self.failing = set(failing)

    @property
    def features(self) -> Features:
        return replace(self.inner.features, reads_ahead=True, place=None)

    def around(self, method: str, key: str, call: Any, **options: Any) -> Any:
        if key in self.failing and method in ("get", "open", "put"):
            raise RetryableError("store.unavailable", "503")
        return call(**options)


class Meeting(Failing):
    """Objects whose first answer is 503; their second comes once eight are asked for at once."""

    def __init__(self, inner: Store, failing: Iterable[str]) -> None:
        super().__init__(inner, failing)
        self.meeting = threading.Barrier(8, timeout=30)

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        raise RetryableError("store.unavailable", "503")
        yield b""

    def open(self, key: str, **options: Any) -> Reader:
        self.meeting.wait()
        return self.inner.open(key, **options)

    def get(self, key: str, **options: Any) -> bytes:
        self.meeting.wait()
        return self.inner.get(key, **options)


def patience() -> RetryPolicy:
    """A policy of very many tries, for which every look at the clock takes a second."""
    seconds = itertools.count()
    return RetryPolicy(1_000, 0.0, deadline_seconds=1e9, clock=lambda: float(next(seconds)))


def copied(
    source: Store, target: Store, infos: list[ObjectInfo], **limits: Any
) -> tuple[Failure, ...]:
    keys: list[str] = []
    failures = copy_batch(
        source,
        target,
        infos,
        prefix="",
        limits=CopyLimits(8, ByteBudget(1 << 26), **limits),
        progress=NullProgress(),
        copied=lambda copy: keys.append(copy.key),
    )
    assert {*keys, *(failure.key for failure in failures)} == {info.key for info in infos}
    return failures


@pytest.fixture
def there() -> tuple[Store, list[ObjectInfo]]:
    store = open_store(f"memory://{uuid.uuid4().hex}/", retry=None)
    return store, [store.put(key, key.encode()) for key in [*NUMBERS, "ok", "ok 2"]]


@pytest.mark.parametrize("failing", ["source", "target"])
@pytest.mark.parametrize("to", ["directory", "bucket"])
def test_no_object_is_tried_for_longer_than_all(to, failing, there, tmp_path):
    """One after the other, each was tried for the whole time: 32 small objects took an hour."""
    source, infos = there
    target = open_store(
        str(tmp_path) if to == "directory" else f"memory://{uuid.uuid4().hex}/", retry=None
    )
    stores = {"source": source, "target": target}
    stores[failing] = RetryStore(Failing(stores[failing], NUMBERS), patience())
    failures = copied(stores["source"], stores["target"], infos, give_up_seconds=6.0)
    assert [failure.key for failure in failures] == NUMBERS
    assert {failure.code for failure in failures} == {"store.unavailable"}
    assert max(failure.attempts for failure in failures) < 10


def test_objects_that_wait_for_memory_give_up_a_failing_store_together(there):
    """The memory is enough for one stream; seven objects begin to wait before any has failed."""
    source, infos = there
    large = [source.put(f"large {number}", bytes(9 << 20)) for number in range(8)]
    target = open_store(f"memory://{uuid.uuid4().hex}/", retry=None)
    policy = RetryPolicy(1_000, 0.002, 0.002)
    source = RetryStore(Failing(source, [info.key for info in large]), policy)
    infos = [*infos[-2:], *large]
    failures = copied(source, target, infos, give_up_seconds=0.4, part_bytes=1 << 20)
    attempts = [failure.attempts for failure in failures]
    assert len(attempts) == 8
    assert sum(attempts) < 3 * max(attempts)


class Later(DelegatingStore):
    """The second piece of an object fails, a second after it was opened; the next fails twice."""

    tries = 0

    def open(self, key: str, **options: Any) -> Reader:
        self.tries += key == "b"
        if key == "b" and self.tries < 3:
            raise RetryableError("store.unavailable", "503")
        reader = super().open(key, **options)
        return Broken(reader) if key == "a" else reader


class Broken(DelegatingReader):
    def __iter__(self) -> Iterator[Buffer]:
        time.sleep(1.0)
        yield b"0"
        error = RetryableError("store.unavailable", "reset")
        error.within_seconds = 0.0
        raise error


def test_a_store_has_not_failed_while_it_gave_bytes(there, tmp_path):
    store, _ = there
    infos = [store.put(key, bytes(9 << 20)) for key in "ab"]
    source = RetryStore(Later(store), RetryPolicy(9, 0.01))
    limits = CopyLimits(1, ByteBudget(1 << 26), part_bytes=1 << 20, give_up_seconds=0.9)
    failures = copy_batch(
        source,
        open_store(str(tmp_path)),
        infos,
        prefix="",
        limits=limits,
        progress=NullProgress(),
        copied=lambda copy: None,
    )
    assert [failure.key for failure in failures] == ["a"]


class Breaking(DelegatingStore):
    """Breaks the first reader of an object after a byte, and the next five at once."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.offsets: list[int] = []

    def open(self, key: str, **options: Any) -> Reader:
        self.offsets.append(options.get("offset", 0))
        reader = super().open(key, **options)
        return Torn(reader, len(self.offsets) == 1) if len(self.offsets) < 7 else reader


class Torn(DelegatingReader):
    def __init__(self, inner: Reader, count: int) -> None:
        super().__init__(inner)
        self._data = bytes(count)

    def __iter__(self) -> Iterator[Buffer]:
        if self._data:
            yield self._data
        raise RetryableError("store.unavailable", "reset")


@pytest.mark.parametrize("to", ["directory", "bucket"])
def test_a_large_object_is_continued_and_not_begun_again(to, there, tmp_path):
    """Its store has the whole patience at once: a second try would read everything again."""
    store, infos = there[0], [there[0].put("large", bytes(9 << 20))]
    target = str(tmp_path) if to == "directory" else f"memory://{uuid.uuid4().hex}/"
    source = Breaking(store)
    failures = copied(RetryStore(source, patience()), open_store(target), infos, part_bytes=1 << 20)
    assert not failures
    assert source.offsets == [0, *[1] * 6]


def test_objects_that_fail_once_are_tried_again_side_by_side(there, tmp_path):
    store, infos = there
    infos = [info for info in infos if info.key in NUMBERS[:8]]
    assert not copied(Meeting(store, ()), open_store(str(tmp_path)), infos)


@pytest.mark.parametrize(("outer", "own", "tries"), [(0.0, 9.0, 1), (9.0, 0.0, 1), (4.0, 9.0, 3)])
def test_calls_are_repeated_as_long_as_the_patience_of_their_work(outer, own, tries, there):
    store = RetryStore(Failing(there[0], NUMBERS), patience())
    with Interrupt(Interrupt(None, outer), own).active(), pytest.raises(RetryableError) as caught:
        store.get(NUMBERS[0])
    assert caught.value.attempts == tries
