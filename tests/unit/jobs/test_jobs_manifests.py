"""Manifests by reference: verified, fetched once, and dropped only when nothing reads them."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from larder.errors import NotFoundError
from larder.jobs.manifests import LocalManifests, forget, put_named, read_ref
from larder.manifest.manifest_files import read_manifest, write_manifest
from larder.manifest.sealed import StoredFile
from larder.store import open_store
from larder.store.base import Store
from tests.support.errors import larder_error
from tests.support.stores import Meanwhile, MeanwhileStore, RecordingStore

SCHEMA = pa.schema([("row", pa.int64())])


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RecordingStore:
    url = f"memory://{uuid.uuid4().hex}/" if request.param == "memory" else str(tmp_path / "store")
    return RecordingStore(open_store(url))


def put(store: Store, folder: Path, number: int) -> StoredFile:
    batch = pa.record_batch([[number, number + 1]], schema=SCHEMA)
    return put_named(
        store, f"m-{number}", write_manifest(folder / f"{number}.parquet", SCHEMA, [batch]), "rows"
    )


def rows(path: Path) -> list[int]:
    return [row for batch in read_manifest(path, SCHEMA) for row in batch.column(0).to_pylist()]


def test_a_manifest_is_read_from_the_store_once(store, tmp_path):
    ref, manifests = put(store, tmp_path, 1), LocalManifests()

    def read(_: int) -> list[int]:
        with manifests.fetched(store, ref) as path:
            return rows(path)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(8))) == [[1, 2]] * 8
    assert store.count("open") == 1
    manifests.forget()
    assert read(0) == [1, 2]
    assert store.count("open") == 2


def test_what_this_process_has_written_is_not_downloaded(tmp_path):
    store = RecordingStore(open_store(f"memory://{uuid.uuid4().hex}/"))
    ref = put(store, tmp_path, 1)
    (tmp_path / "1.parquet").unlink()
    for downloads in (0, 1):
        assert sum(batch.num_rows for batch in read_ref(store, ref, SCHEMA)) == 2
        assert store.count("open") == downloads
        forget()


def test_fetching_one_does_not_block_another(store, tmp_path):
    slow, other = put(store, tmp_path, 1), put(store, tmp_path, 2)
    manifests, begun, done = LocalManifests(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert done.wait(60)

    meanwhile = Meanwhile()
    meanwhile.before("open", slow.path, wait)

    def read(ref: StoredFile) -> list[int]:
        with manifests.fetched(waiting, ref) as path:
            return rows(path)

    waiting = MeanwhileStore(store, meanwhile)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read, slow)
        assert begun.wait(60)
        assert read(other) == [2, 3]
        assert not future.done()
        done.set()
        assert future.result() == [1, 2]


def test_unused_manifests_are_dropped(store, tmp_path):
    refs = [put(store, tmp_path, number) for number in range(4)]
    manifests, paths = LocalManifests(kept=2), []
    with manifests.fetched(store, refs[0]) as held:
        for ref in refs[1:]:
            with manifests.fetched(store, ref) as path:
                paths.append(path)
        assert rows(held) == [0, 1]
        in_place = store.features.local_path
        assert [path.exists() for path in paths] == [in_place, True, True]
    assert [path.exists() for path in (held, *paths)] == [True, in_place, in_place, True]
    manifests.forget()
    assert [path.exists() for path in (held, *paths)] == [in_place] * 4


def test_damage_is_found(store, tmp_path):
    ref, manifests = put(store, tmp_path, 1), LocalManifests()
    with manifests.fetched(store, ref):
        pass
    store.put(ref.path, bytes(ref.bytes))
    if not store.features.local_path:
        manifests.forget()  # a copy stays what it was
    for _ in range(2):
        with larder_error("damage.digest"), manifests.fetched(store, ref):
            pass


def test_a_missing_one(store, tmp_path):
    ref, manifests = put(store, tmp_path, 1), LocalManifests()
    store.delete(ref.path)
    with pytest.raises(NotFoundError), manifests.fetched(store, ref):
        pass
    put(store, tmp_path, 1)
    with manifests.fetched(store, ref) as path:
        assert rows(path) == [1, 2]
