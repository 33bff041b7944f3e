"""Caches of several files: training begins with those that it reads first, the others follow."""

import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import larder
from larder.datalayer import layer_files
from larder.datalayer.cache_catalog import remove_caches
from larder.datalayer.layer_cache import read_cache
from larder.store import open_store
from tests.support.errors import larder_error

COUNT = 10
FILES = 5


def elements(count: int = COUNT) -> Any:
    """Two of them are in a file."""
    return (np.full(20_000, number, np.uint32) for number in range(count))


def train(storage: Any, make: Any = elements, **options: Any) -> Any:
    options = {"file_bytes": 150_000, "batch_size": 1, **options}
    return larder.cache_train_dataset("d", "v1", storage=storage, **options)(make)()


def numbers(loader: Any) -> list[int]:
    return [int(batch[0][0]) for batch in loader]


@pytest.fixture
def names(bucket, tmp_path):
    """A cache in the bucket of which this machine has no copy: the names of its files, in order."""
    train(bucket)
    shutil.rmtree(tmp_path / "local")
    cache = read_cache(open_store(f"{bucket}/d/v1_train"), "d/v1_train")
    assert cache
    assert len(cache.files) == FILES
    return [file.name for file in cache.files]


class Fetched(list[str]):
    """Names of files, of which a thread fetches those that training does not wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()


@pytest.fixture
def fetched(monkeypatch):
    """The names of the files that are downloaded, in order; the thread waits for the gate."""
    keys, download = Fetched(), layer_files.download

    def noted(store: Any, key: str, *some: Any) -> None:
        if threading.current_thread().name == "larder-files":
            keys.gate.wait()
        keys.append(key)
        download(store, key, *some)

    monkeypatch.setattr(layer_files, "download", noted)
    return keys


def joined() -> None:
    for thread in threading.enumerate():
        if thread.name == "larder-files":
            thread.join()


def test_training_begins_with_the_file_that_it_reads_first(bucket, names, fetched):
    loader = train(bucket)
    assert fetched == names[:1]
    batches = iter(loader)
    assert int(next(batches)[0][0]) == 0
    fetched.gate.set()
    assert numbers(batches) == [*range(1, COUNT)]
    assert fetched == names
    assert numbers(train(bucket)) == [*range(COUNT)]
    assert fetched == names


def test_files_are_fetched_in_the_order_in_which_they_are_read(bucket, names, fetched, tmp_path):
    fetched.gate.set()
    train(bucket, offset=14)  # of the second epoch
    joined()
    assert fetched == [*names[2:], *names[:2]]
    del fetched[:]
    loader = train(bucket, shuffle=True, seed=3, cache_dir=tmp_path / "shuffled")
    joined()
    first_read = dict.fromkeys(names[number // 2] for number in numbers(loader))
    assert fetched == [*first_read]
    assert fetched != names


def test_who_needs_a_file_fetches_it_without_the_thread(bucket, names, fetched):
    loader = pickle.loads(pickle.dumps(train(bucket)))  # as a worker has it
    fetched.gate.set()
    joined()
    assert numbers(loader) == [*range(COUNT)]
    assert sorted(fetched) == sorted(names)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_what_a_thread_of_its_parent_fetches(bucket, names, fetched):
    loader = train(bucket)
    reads, writes = os.pipe()
    if not (child := os.fork()):
        os.write(writes, bytes(numbers(loader)))
        os._exit(0)
    fetched.gate.set()
    os.waitpid(child, 0)
    assert [*os.read(reads, 100)] == [*range(COUNT)]


@pytest.mark.parametrize("change", ["altered", "missing"])
def test_an_error_of_the_thread_reaches_training(bucket, names, fetched, change, caplog):
    store = open_store(f"{bucket}/d/v1_train")
    data = bytearray(store.get(names[1]))
    data[9_000] ^= 1
    store.put(names[1], bytes(data)) if change == "altered" else store.delete(names[1])
    loader = train(bucket)
    fetched.gate.set()
    joined()
    code = "damage.digest" if change == "altered" else "object.missing"
    assert names[1] in caplog.text
    with larder_error(code, f"{bucket}/d/v1_train/{names[1]}") as caught:
        numbers(loader)
    assert "larder cache rm" in caught.value.hint
    data[9_000] ^= 1
    store.put(names[1], bytes(data))  # such as by a builder, after somebody has removed the cache
    assert numbers(loader) == [*range(COUNT)]
    # By the thread; by training ahead, and in its turn, each time with the error; and whole.
    assert fetched == [names[0], *names[1:2] * 4, *names[2:]]


def test_of_two_builders_the_second_deletes_no_file_that_both_have(bucket, names, tmp_path):
    with_more: Any = larder.cache_train_dataset(
        *("d", "v1"), storage=bucket, file_bytes=150_000, batch_size=1, on_change="rebuild"
    )

    def other() -> Any:
        yield from elements(6)
        train(bucket, cache_dir=tmp_path / "other machine", on_change="rebuild")
        yield from elements(2)

    remove_leases(bucket)
    remove_caches("d", "v1", None, bucket)
    assert numbers(with_more(other)()) == [*range(6), 0, 1]
    assert {*names[:3]} <= {*keys(bucket)}


def test_a_builder_that_comes_too_late_deletes_no_file_of_the_cache_before(bucket, names, tmp_path):
    def same() -> Any:
        first, *others = elements()
        yield first
        train(bucket, lambda: elements(4), cache_dir=tmp_path / "other", on_change="rebuild")
        yield from others

    assert numbers(train(bucket, same, on_change="rebuild")) == [*range(COUNT)]
    assert {*names} <= {*keys(bucket)}  # of which a trial may still fetch some


def keys(bucket: str) -> list[str]:
    store = open_store(f"{bucket}/d/v1_train")
    return [info.key for page in store.list() for info in page]


def remove_leases(bucket: str) -> None:
    store = open_store(f"{bucket}/d/v1_train")
    for key in keys(bucket):
        if key.startswith("leases/"):
            store.delete(key)


def test_copies_that_cannot_fit_are_refused_at_once(bucket, names, fetched, monkeypatch):
    with larder_error("store.full"):
        train(bucket, cache_bytes="400 kB")
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=400_000))
    with larder_error("store.full"):
        train(bucket)
    assert fetched == []


def test_copies_for_which_others_leave_no_room_are_an_error_of_training(bucket, names, fetched):
    fetched.gate.set()
    other = larder.cache_train_dataset("e", "v1", storage=bucket)(elements)()
    loader = train(bucket, cache_bytes="1.2 MB")
    joined()
    with larder_error("store.full"):
        numbers(loader)
    assert {*fetched} == {*names[:3]}
    assert len(other) == COUNT


def test_files_of_a_directory_are_mapped_there(tmp_path):
    storage = tmp_path / "storage"
    loader = train(storage)
    assert numbers(loader) == numbers(train(storage)) == [*range(COUNT)]
    assert len([*(storage / "d/v1_train").glob("*.mdb")]) == FILES
    second = sorted(Path(storage).rglob("*.mdb"))[1]
    del loader
    second.write_bytes(second.read_bytes()[:-1])
    with larder_error("damage.size", str(second)):
        train(storage)
