"""What becomes of caches and of their copies: eviction, `larder cache ls` and `larder cache rm`."""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from required import at_push

import larder
from larder.cli.main import dispatch
from larder.datalayer import cache_catalog, layer_files, stored
from larder.datalayer.cache_catalog import list_caches, remove_caches
from larder.disk import DRAFT_PREFIX, WORKSHOP_PREFIX
from larder.errors import StoreError
from larder.store import open_store
from larder.versions import leases
from tests.support.errors import larder_error


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A directory that is taken for one of a network file system."""
    monkeypatch.setattr("larder.datalayer.cache_place.is_on_network", lambda folder: True)
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "local"))
    return str(tmp_path / "storage")


def train(storage: Any, name: str = "d", count: int = 10, **options: Any) -> Any:
    decorate = larder.cache_train_dataset(name, "v1", storage=str(storage), **options)
    return decorate(lambda: (np.full(1_000, number) for number in range(count)))()


def copies(tmp_path: Path) -> list[str]:
    folder = tmp_path / "local/yogadl_local_cache"
    return sorted(path.parts[-3] for path in folder.rglob("*.mdb"))


def size_bytes(storage: str) -> int:
    return max(cache["bytes"] for cache in list_caches(storage)["caches"])


def test_the_copy_that_was_opened_longest_ago_is_evicted(network, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_files, "_SETTLED_SECONDS", -1.0)
    for name in "abc":
        train(network, name)
    limit = 2 * size_bytes(network)
    for path in (tmp_path / "local").rglob("*.mdb"):
        path.unlink()
    for name in "aba":  # each is closed at once
        train(network, name, cache_bytes=limit)
        time_later(tmp_path)
    train(network, "c", cache_bytes=limit)
    assert copies(tmp_path) == ["a", "c"]


def time_later(tmp_path: Path) -> None:
    """Make everything one second older."""
    for path in (tmp_path / "local").rglob("*"):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))


def test_an_open_copy_is_never_evicted(network, tmp_path, monkeypatch):
    loaders = [train(network, name) for name in "ab"]
    train(network, "c")
    monkeypatch.setenv("LARDER_CACHE_BYTES", str(2 * size_bytes(network)))
    (path,) = (tmp_path / "local").rglob("c/v1_train/*.mdb")
    path.unlink()
    with larder_error("store.full"):
        train(network, "c")
    assert copies(tmp_path) == ["a", "b"]
    assert int(next(iter(loaders.pop(0)))[0]) == 0
    train(network, "c")
    assert copies(tmp_path) == ["b", "c"]
    assert [int(each[0]) for each in loaders[0]] == [*range(10)]


def test_what_is_being_downloaded_counts_and_what_was_killed_is_removed(network, tmp_path):
    train(network)
    limit = size_bytes(network)
    (path,) = (tmp_path / "local").rglob("*.mdb")
    path.unlink()
    abandoned = path.parent / f"{DRAFT_PREFIX}{'0' * 24}"
    abandoned.write_bytes(bytes(100))
    train(network, cache_bytes=limit)
    assert not abandoned.exists()


def test_a_copy_that_is_evicted_before_it_is_opened_is_fetched_again(network, monkeypatch):
    train(network)
    opened, often = layer_files.open_shared, []

    def open_shared(path: Path) -> int:
        if len(often) < 3:
            often.append(path)
            path.unlink(missing_ok=True)
        return opened(path)

    monkeypatch.setattr(layer_files, "open_shared", open_shared)
    assert len(train(network)) == 10
    assert len(often) == 3


def test_the_limit_is_a_number_of_bytes(network, monkeypatch):
    with larder_error("config.invalid_value", "cache_bytes"):
        train(network, cache_bytes="many")
    monkeypatch.setenv("LARDER_CACHE_BYTES", "-1")
    with larder_error("config.invalid_value", "LARDER_CACHE_BYTES"):
        train(network)


HOLDER = """
import sys
import larder
loader = larder.cache_train_dataset("d", "v1", storage=sys.argv[1])(lambda: range(10))()
print("open", flush=True)
sys.stdin.read()
"""


def opened_by_a_process(storage: str) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, storage], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout
    assert holder.stdout.readline() == b"open\n"
    return holder


def test_force_ends_a_lease_but_no_process_that_reads(bucket):
    command = ["cache", "rm", "d", "v1", bucket]
    holder = opened_by_a_process(bucket)
    with larder_error("cache.in_use"):
        dispatch([*command, "--force"])
    holder.kill()
    holder.communicate()
    with larder_error("cache.in_use") as refused:
        dispatch(command)
    assert "--force" in refused.value.hint
    assert len(list_caches(bucket)["caches"]) == 1
    dispatch([*command, "--force"])
    assert [info for page in open_store(bucket).list() for info in page] == []


def test_a_cache_in_a_directory_is_in_use_while_a_process_has_it_open(tmp_path):
    storage = str(tmp_path / "storage")
    holder = opened_by_a_process(storage)
    (cache,) = list_caches(storage)["caches"]
    assert cache["used_by"] == ["a process that has it open"]
    assert cache["records"] == 10 < cache["bytes"]
    with larder_error("cache.in_use", f"{storage}/d/v1_train"):
        remove_caches("d", "v1", None, storage)
    holder.kill()
    holder.communicate()
    assert remove_caches("d", "v1", None, storage)["removed"] == ["d/v1_train"]
    assert list_caches(storage)["caches"] == []
    assert not [*Path(storage).rglob("*.mdb"), *Path(storage).rglob("*.json")]


@pytest.fixture
def google(gcs_server, tmp_path, monkeypatch):
    gcs_server.create_bucket("removing")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "local"))
    return "gs://removing/dir"


@pytest.mark.parametrize("where", ["network", "bucket", *at_push("google")])
def test_a_lease_keeps_a_cache_until_it_has_ended(where, request, monkeypatch):
    storage = request.getfixturevalue(where)
    loader = train(storage)
    (cache,) = list_caches(storage)["caches"]
    assert len(cache["used_by"]) == 1
    with larder_error("cache.in_use"):
        remove_caches("d", "v1", "train", storage)
    now_us = leases.store_now_us
    days_us = cache_catalog.LEASE_DAYS * leases.DAY_US
    monkeypatch.setattr(
        cache_catalog, "store_now_us", lambda store: now_us(store) + days_us + 10**6
    )
    assert remove_caches("d", "v1", "train", storage)["removed"] == ["d/v1_train"]
    assert [info for page in open_store(storage).list() for info in page] == []
    assert int(next(iter(loader))[0]) == 0
    assert len(train(storage, count=3)) == 3


def test_a_machine_renews_its_lease_once_a_day(network, monkeypatch):
    train(network)
    store = open_store(f"{network}/d/v1_train")
    (before,) = leases.read_leases(store)
    train(network)
    assert [each.written_us for each in leases.read_leases(store)] == [before.written_us]
    (path,) = Path(network).rglob("leases/*")
    os.utime(path, (0, 0))
    train(network)
    (after,) = leases.read_leases(store)
    assert after.written_us >= before.written_us


@pytest.mark.parametrize("stop", range(1, 4))
def test_a_removal_that_is_stopped_leaves_no_half(network, monkeypatch, stop):
    """What opens a cache has all of it, or builds it anew."""
    train(network)
    monkeypatch.setattr(cache_catalog, "_users", lambda *some: [])
    opened, deletions = cache_catalog.CachePlace.store, itertools.count(1)

    def store(place: Any) -> Any:
        plain = opened(place)
        delete = plain.delete

        def stopping(key: str, **options: Any) -> None:
            if next(deletions) == stop:
                raise KeyboardInterrupt
            delete(key, **options)

        plain.delete = stopping
        return plain

    with monkeypatch.context() as patch:
        patch.setattr(cache_catalog.CachePlace, "store", store)
        patch.setattr(cache_catalog, "store_now_us", lambda store: 0)
        with pytest.raises(KeyboardInterrupt):
            remove_caches("d", "v1", None, network)
    assert len(train(network, count=10 if stop == 1 else 3)) == (10 if stop == 1 else 3)


def test_a_cache_that_is_removed_while_it_is_opened_is_built_anew(network, monkeypatch):
    train(network)
    for path in Path(network).parent.rglob("*.mdb"):
        path.unlink()
    monkeypatch.setattr(cache_catalog, "_users", lambda *some: [])
    download = layer_files.download

    def removed_first(*some: Any) -> None:
        if list_caches(network)["caches"]:
            remove_caches("d", "v1", None, network)
        download(*some)

    monkeypatch.setattr(layer_files, "download", removed_first)
    assert len(train(network, count=3)) == 3


def test_what_a_builder_has_not_published_yet_stays(network, monkeypatch):
    train(network)
    monkeypatch.setattr(cache_catalog, "_users", lambda *some: [])
    (published,) = (Path(network) / "d/v1_train").glob("*.mdb")
    unpublished = published.with_name(f"{'0' * 64}.mdb")
    unpublished.write_bytes(b"of a builder")
    later_ns = time.time_ns() + 10**9
    for path in (published, unpublished):  # as of a store whose times are coarse
        os.utime(path, ns=(later_ns, later_ns))
    foreign = unpublished.with_name("notes.txt")
    foreign.write_text("of a user")
    remove_caches("d", "v1", None, network)
    assert sorted(path.name for path in (Path(network) / "d/v1_train").iterdir()) == [
        unpublished.name,
        foreign.name,
    ]


def test_what_cannot_be_removed_is_refused(tmp_path):
    storage = str(tmp_path / "storage")
    for command in (["ls"], ["rm", "d", "v1"]):
        with larder_error("store.missing", f"file://{storage}/"):
            dispatch(["cache", *command, storage])
    Path(storage).mkdir()
    with larder_error("cache.missing"):
        remove_caches("d", "v1", None, storage)
    train(storage, "data")
    with larder_error("cache.missing") as raised:
        remove_caches("dato", "v1", None, storage)
    assert "data/v1_train" in raised.value.hint
    with larder_error("cache.missing"):
        remove_caches("data", "v1", "val", storage)
    with larder_error("config.invalid_flag"):
        dispatch(["cache", "rm", "data"])
    if os.geteuid():
        (tmp_path / "storage/data/v1_train").chmod(0o555)
        with larder_error("config.path"):
            remove_caches("data", "v1", None, storage)


def test_a_damaged_cache_is_listed_and_removed(tmp_path, capsys):
    storage = str(tmp_path / "storage")
    train(storage)
    (document,) = Path(storage).rglob("cache.json")
    document.write_text("{}")
    dispatch(["cache", "ls", storage])
    assert "not a Larder document" in capsys.readouterr().out
    dispatch(["cache", "rm", "d", "v1", storage, "--json"])
    assert json.loads(capsys.readouterr().out)["removed"] == ["d/v1_train"]
    dispatch(["cache", "ls", storage])
    assert capsys.readouterr().out.endswith("has no caches of functions\n")


def test_a_storage_that_cannot_be_written_takes_no_lease(bucket, monkeypatch):
    train(bucket)
    opened = stored.CachePlace.store

    def refused(*_: Any, **__: Any) -> None:
        raise StoreError("store.denied", "no")

    def store(place: Any) -> Any:
        plain = opened(place)
        plain.put = refused
        return plain

    remove_leases = open_store(f"{bucket}/d/v1_train")
    for info in [info for page in remove_leases.list("leases/") for info in page]:
        remove_leases.delete(info.key)
    monkeypatch.setattr(stored.CachePlace, "store", store)
    assert len(train(bucket)) == 10
    assert list_caches(bucket)["caches"][0]["used_by"] == []
    with larder_error("store.denied"):
        remove_caches("d", "v1", None, bucket)


def left(folder: Path) -> list[str]:
    """List temporary files, but for locks."""
    found = (each.name for each in folder.glob(".larder-tmp-*"))
    return [name for name in found if not name.endswith(".lock")]


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("is_remote", [False, True])
def test_what_a_killed_builder_of_another_container_left_goes(
    removes, is_remote, tmp_path, monkeypatch
):
    """On a network file system, a draft that is old; else its private directory, at once."""
    monkeypatch.setattr("larder.datalayer.cache_place.is_on_network", lambda folder: is_remote)
    storage, local = tmp_path / "storage", tmp_path / "local"
    train(storage, cache_dir=local)
    home = storage / "d/v1_train"
    if is_remote:
        draft = home / f"{DRAFT_PREFIX}{'0' * 24}"
        draft.write_bytes(b"half of a file")
        os.utime(draft, (0, 0))
    else:
        (home / f"{WORKSHOP_PREFIX}abcd1234").mkdir()
        (home / f"{WORKSHOP_PREFIX}abcd1234/0.mdb").write_bytes(b"half of a file")
        (home / f"{WORKSHOP_PREFIX}abcd1234/lock").touch()
    if removes:
        for lease in (home / "leases").glob("*"):
            lease.unlink()
        remove_caches("d", "v1", None, str(storage))
    else:
        train(storage, cache_dir=local)
    assert left(home) == []


def test_the_directory_of_a_killed_builder_goes_from_where_copies_are(network, tmp_path):
    train(network)
    home = tmp_path / "local/yogadl_local_cache/d/v1_train"
    (home / f"{WORKSHOP_PREFIX}abcd1234").mkdir()
    (home / f"{WORKSHOP_PREFIX}abcd1234/lock").touch()
    train(network)
    assert left(home) == []
