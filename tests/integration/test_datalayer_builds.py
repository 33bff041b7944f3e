"""Builds of cached functions: within the limit of copies, and never of another function."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from required import at_push

import larder
from larder.store import open_store
from tests.support.errors import larder_error


def train(storage: Any, make: Any, name: str = "d", **options: Any) -> Any:
    options = {"rank": 0, "world": 1, **options}
    return larder.cache_train_dataset(name, "v1", storage=storage, **options)(make)()


def copied_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.mdb"))


def of_megabytes(count: int) -> Callable[[], Iterator[Any]]:
    def make() -> Iterator[Any]:
        return (np.full(100_000, number, np.uint8) for number in range(10 * count))

    return make


@pytest.mark.parametrize("file_bytes", ["4 GB", "400 kB", "900 kB"])
def test_a_build_that_exceeds_the_limit_of_copies_is_refused(bucket, tmp_path, file_bytes):
    for name in "ab":
        with larder_error("store.full") as caught:
            train(bucket, of_megabytes(3), name, cache_bytes="1 MB", file_bytes=file_bytes)
        assert "1.0 MB" in str(caught.value)
    assert copied_bytes(tmp_path / "local") == 0
    assert not [key for page in open_store(bucket).list() for key in page if ".mdb" in key.key]


def test_copies_of_other_caches_make_room_for_a_build(bucket, tmp_path):
    for name in "abc":
        train(bucket, of_megabytes(2), name, cache_bytes="3 MB", file_bytes="600 kB")
        gc.collect()  # of what was read, no copy is open
        assert copied_bytes(tmp_path / "local") <= 3_000_000


def test_a_build_beside_copies_that_are_open_is_refused(bucket, tmp_path):
    loader = train(bucket, of_megabytes(2), "a", cache_bytes="3 MB")
    with larder_error("store.full"):
        train(bucket, of_megabytes(2), "b", cache_bytes="3 MB")
    assert len(loader) == 20
    assert copied_bytes(tmp_path / "local") <= 3_000_000


def test_the_limit_of_copies_is_not_that_of_a_directory(tmp_path):
    assert len(train(tmp_path / "storage", of_megabytes(2), cache_bytes="1 MB")) == 20


def value(number: int) -> Callable[[], list[int]]:
    return lambda: [number] * 3


@pytest.mark.parametrize("where", ["directory", *at_push("bucket")])
def test_of_two_that_rebuild_each_reads_what_its_own_function_returned(where, request, tmp_path):
    """The other machine replaces the cache while this one builds."""
    remote = where == "bucket"
    storage = request.getfixturevalue("bucket") if remote else tmp_path / "storage"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("larder.datalayer.place.is_on_network", lambda folder: True)
        train(storage, value(0), cache_dir=tmp_path / "first")
        others: set[Any] = set()  # which no digest of the function has

        def mine() -> Iterator[int]:
            options = {"cache_dir": tmp_path / "other", "on_change": "rebuild"}
            others.add(train(storage, value(1), **options))
            yield from (2, 2, 2, 2)

        loader = train(storage, mine, cache_dir=tmp_path / "mine", on_change="rebuild")
        assert [int(each) for each in loader] == [2] * 4
        assert [[int(each) for each in other] for other in others] == [[1] * 3]
        again = train(storage, mine, cache_dir=tmp_path / "mine", on_change="error")
        assert [int(each) for each in again] == [2] * 4


def test_a_builder_that_refuses_changes_refuses_another_function_that_was_first(bucket, tmp_path):
    def mine() -> Iterator[int]:
        train(bucket, value(1), cache_dir=tmp_path / "other")
        yield from (2, 2, 2)

    with larder_error("cache.changed"):
        train(bucket, mine, cache_dir=tmp_path / "mine", on_change="error")


@pytest.mark.parametrize("elements", [["text"], [0.5], [(1, 2)], [np.zeros(3, int)]], ids=str)
def test_another_function_whose_elements_are_of_another_type_is_refused(elements, tmp_path):
    def other() -> Any:
        return iter(elements)

    train(tmp_path, value(1))
    with larder_error("cache.schema", f"file://{tmp_path}/d/v1_train/cache.json") as caught:
        train(tmp_path, other)
    assert "but the cache has element int64[]" in str(caught.value)
