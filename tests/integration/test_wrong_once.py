"""Readers of a store that answers wrongly, once or always, for each file that they read."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pipeline_lab import directory_lab

import larder
from larder.datalayer.cache_place import CachePlace
from larder.readers.access import DatasetAccess
from larder.store import open_store
from larder.store.base import Store
from larder.store.delegate import BytesReader, DelegatingStore
from tests.support.errors import code_of
from tests.support.memory import forget
from tests.support.stores import keys_of

WRONG: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "cut": lambda data: data[:-1],
}
ALWAYS = 1_000
URL = "memory://wrong-once/larder/d"


class WrongStore(DelegatingStore):
    """The first ``times`` readings of each key return something else."""

    def __init__(self, inner: Store, wrong: Callable[[bytes], bytes], times: int) -> None:
        super().__init__(inner)
        self._wrong, self._times = wrong, times
        self.read: Counter[str] = Counter()

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        result = call(**options)
        if method not in ("get", "open"):
            return result
        self.read[key] += 1
        if self.read[key] > self._times:
            return result
        data = self._wrong(result if method == "get" else b"".join(result))
        return data if method == "get" else BytesReader(result.info, data)


@pytest.mark.parametrize("times", [1, ALWAYS])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_training_reads_of_a_version_is_read_once_more(wrong, times, tmp_path, monkeypatch):
    """One wrong bit of the tag, version.json, the index, a shard or a cache ended training."""
    objects = {f"a/{number}.txt": b"%d" % number * 50 for number in range(9)}
    lab = directory_lab(
        tmp_path, objects, splits={"train": "**"}, validate="none", cache={"records": "encoded"}
    )
    lab.prepare()
    there, copy = open_store(f"{lab.storage}/larder/d"), open_store(URL)
    for key in keys_of(there):
        copy.put(key, there.get(key))

    def read() -> tuple[list[Any], list[Any]]:
        data = larder.open(f"{URL}@latest", cache_dir=tmp_path / "copies")
        return [*data.samples_of("train")], [each["key"] for each in data.cache("train")]

    store = WrongStore(copy, wrong, times)
    monkeypatch.setattr(DatasetAccess, "store", lambda access: store)
    try:
        if times == ALWAYS:
            assert code_of(read).startswith("damage.")
        else:
            samples, keys = read()
            assert [sample.key for sample in samples] == keys
            assert len(keys) == 9
            names = {key.rpartition("/")[2].rpartition(".")[2] for key in store.read}
            assert names >= {"json", "npz", "tar", "mdb"}
    finally:
        forget("wrong-once")


@pytest.mark.parametrize("times", [1, ALWAYS])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_the_data_layer_reads_is_read_once_more(wrong, times, bucket, tmp_path, monkeypatch):
    larder.cache_train_dataset("d", "v1", storage=bucket)(lambda: range(10))()
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "other"))
    train = larder.cache_train_dataset("d", "v1", storage=bucket)(lambda: range(10))
    stores: dict[str, WrongStore] = {}
    opened = CachePlace.store

    def store(place: CachePlace) -> WrongStore:
        return stores.setdefault(place.url, WrongStore(opened(place), wrong, times))

    monkeypatch.setattr(CachePlace, "store", store)
    if times == ALWAYS:
        assert code_of(train).startswith("damage.")
    else:
        assert [*map(int, train())] == [*range(10)]
        (of_cache,) = stores.values()
        assert {key.rpartition(".")[2] for key in of_cache.read} == {"json", "mdb"}
