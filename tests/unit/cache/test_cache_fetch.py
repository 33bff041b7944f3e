"""Cache files in remote stores are downloaded once, and only verified files get their name."""

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import CacheFileFacts, Codec
from larder.cache.file import fetch_file, open_file
from larder.cache.schema import Field, RecordSchema
from larder.store.download import VARIABLE, cache_directory
from larder.store.local.store import LocalStore
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget
from tests.support.stores import Meanwhile, MeanwhileStore, RecordingStore

SCHEMA = RecordSchema((Field("x", "int64"),))
CODEC = Codec(SCHEMA)


@pytest.fixture
def facts(tmp_path: Path) -> CacheFileFacts:
    """A file that was built here."""
    rows = ({"x": n} for n in range(100))
    return build_file(CODEC.encode_each(rows), SCHEMA, tmp_path / "built.mdb")


@pytest.fixture
def store(tmp_path: Path, facts: CacheFileFacts) -> Iterator[RecordingStore]:
    """And a store that has it."""
    store = RecordingStore(MemoryStore("fetch"))
    store.put("cache/a.mdb", (tmp_path / "built.mdb").read_bytes())
    yield store
    forget("fetch")


def test_a_part_is_downloaded_once(store, facts, tmp_path):
    for _ in range(2):
        path = fetch_file(store, "cache/a.mdb", facts, tmp_path / "c" / "d")
        with open_file(path, facts, verify=True) as file:
            assert file[42]["x"] == 42
    assert path.name == f"{facts.sha256}.mdb"
    assert store.count("open") == 1
    assert sorted(os.listdir(path.parent)) == [f".{path.name}.lock", path.name]


def test_a_directory_is_read_in_place(facts, tmp_path):
    path = fetch_file(LocalStore(tmp_path), "built.mdb", facts, tmp_path / "c")
    assert path == tmp_path / "built.mdb"
    assert not (tmp_path / "c").exists()


def test_a_file_of_another_length_is_downloaded_again(store, facts, tmp_path):
    (tmp_path / f"{facts.sha256}.mdb").write_bytes(b"cut short")
    path = fetch_file(store, "cache/a.mdb", facts, tmp_path)
    open_file(path, facts, verify=True).close()


def test_ranks_that_want_the_same_part_download_it_once(store, facts, tmp_path):
    gate, meanwhile = threading.Event(), Meanwhile()
    meanwhile.before("open", "a.mdb", gate.wait, times=4)
    slow = MeanwhileStore(store, meanwhile)
    with ThreadPoolExecutor(4) as pool:
        wanted = [
            pool.submit(fetch_file, slow, "cache/a.mdb", facts, tmp_path / "c") for _ in range(4)
        ]
        gate.set()
        assert len({future.result() for future in wanted}) == 1
    assert store.count("open") == 1


def test_a_part_larger_than_the_disk_is_refused(store, tmp_path):
    facts = CacheFileFacts(bytes=1 << 62, sha256="f" * 64, digest="d" * 64, records=1)
    with larder_error("store.full"):
        fetch_file(store, "cache/a.mdb", facts, tmp_path / "c")
    assert store.count("open") == 0


def test_where_downloads_go(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert cache_directory() == Path("/home/someone/.cache/larder")
    monkeypatch.setenv(VARIABLE, "~/scratch")
    assert cache_directory() == Path("/home/someone/scratch")
    assert cache_directory("/given") == Path("/given")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINVAL, errno.EIO])
def test_a_file_system_that_refuses_locks_can_be_written(
    store, facts, tmp_path, monkeypatch, number
):

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    built = build_file(CODEC.encode_each({"x": n} for n in range(100)), SCHEMA, tmp_path / "b.mdb")
    assert built == facts
    path = fetch_file(store, "cache/a.mdb", facts, tmp_path / "c")
    open_file(path, facts, verify=True).close()
    assert sorted(os.listdir(tmp_path / "c")) == [f".{path.name}.lock", path.name]
