"""Caches of functions in buckets: built once, within the limit of copies, of one function."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from required import at_push

import larder
from larder.datalayer import layer_files, stored
from larder.store import open_store
from tests.support.errors import larder_error
from tests.support.processes import run_python

LIGHT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        heavy = ("prefect", "pyarrow", "pydantic", "yaml", "boto3", "gcsfs", "PIL", "tensorflow")
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Blocker())
"""
"""Begins a program that cannot import what a light install lacks."""


def train(storage: Any, elements: Any = range(10), **options: Any) -> Any:
    return larder.cache_train_dataset("d", "v1", storage=storage, **options)(lambda: elements)()


def keys(url: str) -> list[str]:
    return [info.key for page in open_store(url).list() for info in page]


def calls(store: Any, name: str, before: Any) -> Any:
    done = getattr(store, name)

    def method(*arguments: Any, **options: Any) -> Any:
        before()
        return done(*arguments, **options)

    setattr(store, name, method)
    return store


def test_a_bucket_has_the_layout_and_is_downloaded_once(bucket, tmp_path, monkeypatch):
    assert [*map(int, train(bucket))] == [*range(10)]
    names = [key.removeprefix("d/v1_train/") for key in keys(bucket)]
    assert [name for name in names if name.endswith(".mdb")] == names[:1]
    assert [name.partition("machine-")[0] for name in names[1:]] == [
        *("cache.json", "leases/", "work/conditions.json")
    ]
    (local,) = (tmp_path / "local/yogadl_local_cache/d/v1_train").glob("*.mdb")
    shutil.rmtree(tmp_path / "local")
    downloads = []
    monkeypatch.setattr(
        layer_files, "download", lambda *some: (downloads.append(some), download(*some))[1]
    )
    with ThreadPoolExecutor(20) as threads:
        for loader in threads.map(lambda _: train(bucket, None), range(20)):
            assert [*map(int, loader)] == [*range(10)]
    assert len(downloads) == 1
    local.write_bytes(b"altered" + local.read_bytes()[7:])
    assert [*map(int, train(bucket, None))] == [*range(10)]


download = layer_files.download


def test_two_buckets_with_one_local_folder_are_two_caches(bucket, s3_env):
    boto3.client("s3", endpoint_url=s3_env.endpoint).create_bucket(Bucket=f"{bucket[5:-4]}-2")
    other = f"{bucket[:-4]}-2/dir"
    for storage, count in ((bucket, 3), (other, 4)) * 2:
        assert len(train(storage, range(count))) == count


@pytest.mark.parametrize("kept", [True, False])
def test_of_two_machines_that_build_one_has_built_the_cache(bucket, tmp_path, monkeypatch, kept):
    """The other one has built it, too, and reads the first one's; also where no condition holds."""
    if not kept:
        forgetful = stored.Conditions(if_absent=False, if_match=False)
        monkeypatch.setattr(stored, "probe_conditions", lambda store: forgetful)

    def first() -> Iterator[Any]:
        yield 0
        train(bucket, range(10), cache_dir=tmp_path / "other machine")
        yield from (100, 200)

    loader = train(bucket, first())
    assert [*map(int, loader)] == [*range(10)]
    assert len([key for key in keys(bucket) if key.endswith(".mdb")]) == 1
    assert len(list((tmp_path / "local").rglob("*.mdb"))) == 1


def test_two_machines_whose_elements_differ(bucket, tmp_path):
    def first() -> Iterator[Any]:
        yield 0.5
        train(bucket, range(10), cache_dir=tmp_path / "other machine")

    with larder_error("cache.schema", f"{bucket}/d/v1_train/cache.json"):
        train(bucket, first())


def test_a_cache_that_is_built_again_replaces_the_one_that_is_read(bucket):
    loader = train(bucket)
    replaced = larder.cache_train_dataset("d", "v1", storage=bucket, on_change="rebuild")
    assert [*map(int, replaced(lambda: range(1, 11))())] == [*range(1, 11)]
    assert [*map(int, loader)] == [*range(10)]


BUILDER = """
import os, signal, sys
import numpy as np
import larder

storage, when = sys.argv[1:]

def make():
    print("built", flush=True)
    for number in range(10):
        if (number, when) == (5, "kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield number
    if when == "wait":
        print("waiting", flush=True)
        sys.stdin.read()

loader = larder.cache_train_dataset("d", "v1", storage=storage, file_bytes=40)(make)()
print(sum(map(int, loader)))
"""


def start(storage: Any, when: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(storage), when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("where", ["directory", *at_push("bucket")])
def test_processes_of_a_machine_wait_for_the_one_that_builds(where, request, tmp_path):
    storage = tmp_path / "s" if where == "directory" else request.getfixturevalue("bucket")
    builder = start(storage, "wait")
    assert builder.stdout.readline() == "built\n"
    assert builder.stdout.readline() == "waiting\n"
    others = [start(storage, "") for _ in range(2)]
    builder.communicate()
    assert [other.communicate()[0] for other in others] == ["45\n", "45\n"]


def test_a_builder_that_is_killed_is_taken_over(tmp_path):
    storage = tmp_path / "storage"
    killed = start(storage, "kill")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    waiting = start(storage, "wait")
    assert [waiting.stdout.readline() for _ in range(2)] == ["built\n", "waiting\n"]
    heir = start(storage, "")
    waiting.kill()
    waiting.communicate()
    assert heir.communicate()[0] == "built\n45\n"
    found = [path.suffix for path in (storage / "d/v1_train").iterdir()]
    assert found.count(".mdb") == 2
    assert set(found) <= {".mdb", ".json", ".lock"}


@pytest.mark.parametrize("write", ["upload", "put"])
def test_a_build_that_stops_before_any_write_is_done_again(tmp_path, monkeypatch, write):
    """Whatever a builder has left, the next one makes the cache whole."""
    monkeypatch.setattr("larder.datalayer.cache_place.is_on_network", lambda folder: True)

    def stop() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        opened = stored.CachePlace.store
        patch.setattr(stored.CachePlace, "store", lambda place: calls(opened(place), write, stop))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "storage", range(3), cache_dir=tmp_path / "a")
    for _ in range(2):
        assert [*train(tmp_path / "storage", range(3), cache_dir=tmp_path / "b")] == [0, 1, 2]


def test_google_cloud_storage(gcs_server, tmp_path, monkeypatch):
    gcs_server.create_bucket("layer")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)
    for local in ("a", "b"):
        loader = train("gs://layer/dir", range(10), cache_dir=tmp_path / local)
        assert [*map(int, loader)] == [*range(10)]


def test_a_light_install_builds_and_reads(tmp_path):
    for _ in range(2):
        done = run_python("-c", LIGHT + BUILDER, tmp_path, "")
        assert (done.returncode, done.stdout.split()[-1]) == (0, "45"), done.stderr


def test_too_little_disk_is_refused_before_a_byte(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=20_000))
    with larder_error("store.full"):
        train(tmp_path / "s", (np.zeros(10_000) for _ in range(5)))
    assert not list(Path(tmp_path).rglob("*.mdb"))


def build(storage: Any, make: Any, name: str = "d", **options: Any) -> Any:
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
            build(bucket, of_megabytes(3), name, cache_bytes="1 MB", file_bytes=file_bytes)
        assert "1.0 MB" in str(caught.value)
    assert copied_bytes(tmp_path / "local") == 0
    assert not [key for page in open_store(bucket).list() for key in page if ".mdb" in key.key]


def test_copies_of_other_caches_make_room_for_a_build(bucket, tmp_path):
    for name in "abc":
        build(bucket, of_megabytes(2), name, cache_bytes="3 MB", file_bytes="600 kB")
        gc.collect()  # of what was read, no copy is open
        assert copied_bytes(tmp_path / "local") <= 3_000_000


def test_a_build_beside_copies_that_are_open_is_refused(bucket, tmp_path):
    loader = build(bucket, of_megabytes(2), "a", cache_bytes="3 MB")
    with larder_error("store.full"):
        build(bucket, of_megabytes(2), "b", cache_bytes="3 MB")
    assert len(loader) == 20
    assert copied_bytes(tmp_path / "local") <= 3_000_000


def test_the_limit_of_copies_is_not_that_of_a_directory(tmp_path):
    assert len(build(tmp_path / "storage", of_megabytes(2), cache_bytes="1 MB")) == 20


def value(number: int) -> Callable[[], list[int]]:
    return lambda: [number] * 3


@pytest.mark.parametrize("where", ["directory", *at_push("bucket")])
def test_of_two_that_rebuild_each_reads_what_its_own_function_returned(where, request, tmp_path):
    """The other machine replaces the cache while this one builds."""
    remote = where == "bucket"
    storage = request.getfixturevalue("bucket") if remote else tmp_path / "storage"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("larder.datalayer.cache_place.is_on_network", lambda folder: True)
        build(storage, value(0), cache_dir=tmp_path / "first")
        others: set[Any] = set()  # which no digest of the function has

        def mine() -> Iterator[int]:
            options = {"cache_dir": tmp_path / "other", "on_change": "rebuild"}
            others.add(build(storage, value(1), **options))
            yield from (2, 2, 2, 2)

        loader = build(storage, mine, cache_dir=tmp_path / "mine", on_change="rebuild")
        assert [int(each) for each in loader] == [2] * 4
        assert [[int(each) for each in other] for other in others] == [[1] * 3]
        again = build(storage, mine, cache_dir=tmp_path / "mine", on_change="error")
        assert [int(each) for each in again] == [2] * 4


def test_a_builder_that_refuses_changes_refuses_another_function_that_was_first(bucket, tmp_path):
    def mine() -> Iterator[int]:
        build(bucket, value(1), cache_dir=tmp_path / "other")
        yield from (2, 2, 2)

    with larder_error("cache.changed"):
        build(bucket, mine, cache_dir=tmp_path / "mine", on_change="error")


@pytest.mark.parametrize("elements", [["text"], [0.5], [(1, 2)], [np.zeros(3, int)]], ids=str)
def test_another_function_whose_elements_are_of_another_type_is_refused(elements, tmp_path):
    def other() -> Any:
        return iter(elements)

    build(tmp_path, value(1))
    with larder_error("cache.schema", f"file://{tmp_path}/d/v1_train/cache.json") as caught:
        build(tmp_path, other)
    assert "but the cache has element int64[]" in str(caught.value)
