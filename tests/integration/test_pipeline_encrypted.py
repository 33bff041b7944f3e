"""A bucket whose etags look like an MD5 but are not: SSE-KMS."""

from typing import Any

import pytest
from pipeline_lab import directory_lab, images, memory_lab

from larder.store.base import Store
from tests.support.runs import between
from tests.support.stores import EncryptedStore, RecordingStore

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 8_000},
    "cache": {},
    "cluster": {"runner": {"workers": 2, "batch_bytes": 1_000}, "copy": {"concurrency": 8}},
}


@pytest.mark.parametrize("mirror", [True, False])
def test_only_one_object_is_read_twice(tmp_path, mirror):
    objects = images()
    lab = memory_lab(tmp_path, objects, **FIELDS, mirror=mirror)
    sources: list[RecordingStore] = []

    def wrap(store: Store) -> Store:
        if store.url != f"{lab.source}/":
            return store
        sources.append(RecordingStore(EncryptedStore(store)))
        return sources[-1]

    with between(wrap):
        document = lab.prepare()
    read_bytes = sum(store.moved_bytes("get") + store.moved_bytes("open") for store in sources)
    listed_bytes = sum(map(len, objects.values()))
    largest_bytes = max(map(len, objects.values()))
    assert listed_bytes < read_bytes <= listed_bytes + largest_bytes
    assert document["digest"] == directory_lab(tmp_path, **FIELDS).prepare()["digest"]
    lab.check()
