"""Shards that are kept open."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from larder.errors import DamageError
from larder.samples.indexed import IndexedPart, IndexedSample
from larder.shards.old_shards import OpenShards


class Shard:
    """A shard that is opened by many; notes who has it open, and in which order it is read."""

    def __init__(self) -> None:
        self.opened = 0
        self.now_open = 0
        self.reading = threading.Lock()

    def open(self) -> Reader:
        return Reader(self)


class Reader:
    url = "x"

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._row = -1

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> Mapping[str, bytes]:
        assert self._shard.reading.acquire(blocking=False), "one thread at a time"
        try:
            assert sample.offset > self._row, "from front to back"
            self._row = sample.offset
            if sample.key == "bad":
                raise DamageError("damage.record", "no", where="x")
            return {"bin": b"%d" % sample.offset}
        finally:
            self._shard.reading.release()

    def __enter__(self) -> Reader:
        self._shard.opened += 1
        self._shard.now_open += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._shard.now_open -= 1


def rows(*numbers: int, key: str = "k") -> list[IndexedSample]:
    return [IndexedSample(key, "s", number, 1, None, ()) for number in numbers]


def read(shards: OpenShards, shard: Shard, key: str, *numbers: int) -> None:
    found = shards.read(key, shard.open, rows(*numbers))
    assert found == [{"bin": b"%d" % number} for number in numbers]


def test_a_shard_is_opened_once_to_go_forward_and_again_to_go_back():
    shard = Shard()
    with OpenShards() as shards:
        read(shards, shard, "a", 0, 3)
        read(shards, shard, "a", 4, 9)
        assert shard.opened == 1
        read(shards, shard, "a", 2)
        read(shards, shard, "a", 2)
        assert (shard.opened, shard.now_open) == (3, 1)
    assert shard.now_open == 0


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_few_shards_are_kept_open_the_last_ones(kept):
    found = {str(number): Shard() for number in range(6)}
    with OpenShards(kept) as shards:
        for row in range(3):
            for key, shard in found.items():
                read(shards, shard, key, row)
                assert sum(each.now_open for each in found.values()) <= kept
        still = [key for key, shard in found.items() if shard.now_open]
        assert still == list(found)[6 - kept :]


def test_a_shard_that_raised_an_error_is_opened_again():
    shard = Shard()
    with OpenShards() as shards:
        read(shards, shard, "a", 0)
        with pytest.raises(DamageError):
            shards.read("a", shard.open, rows(1, key="bad"))
        assert shard.now_open == 0
        read(shards, shard, "a", 2)
        assert (shard.opened, shard.now_open) == (2, 1)


def test_many_threads_read_the_same_shards():
    found = {str(number): Shard() for number in range(3)}
    raised: list[Any] = []
    with OpenShards(1) as shards:

        def work(first: int) -> None:
            try:
                for row in range(200):
                    key = str((first + row) % 3)
                    read(shards, found[key], key, row, row + 5)
            except BaseException as error:
                raised.append(error)
                raise

        threads = [threading.Thread(target=work, args=(first,)) for first in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not raised
    assert not any(shard.now_open for shard in found.values())
