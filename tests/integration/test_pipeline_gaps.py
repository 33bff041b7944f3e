"""The next run makes the missing shards, wherever they are missing, and nothing else."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from pipeline_lab import directory_lab, images, listing, opened

from larder.versions.documents import seal, unseal

SHARDS = 6


@pytest.mark.parametrize(
    "gone", [gone for count in (1, 2) for gone in combinations(range(SHARDS), count)]
)
def test_missing_shards_are_made_again_from_their_own_samples(
    tmp_path: Path, gone: tuple[int, ...]
) -> None:
    splits = {name: f"{name}/**" for name in "abcdef"}
    lab = directory_lab(tmp_path, images("abcdef", each=2), splits=splits)
    storage = tmp_path / "local"
    first = lab.prepare(cluster={"runner": {"batch_bytes": 1}})
    before = listing(storage)
    shards = sorted(key for key in before if key.endswith(".tar"))
    assert len(shards) == SHARDS
    segment = shards[0].split("/shards/")[0]
    with opened(storage) as store:
        root = segment.split("segments/")[0]
        for key in [key for key in before if key.startswith(f"{root}versions")]:
            store.delete(key)
        store.delete(f"{segment}/segment.json")
        for number in gone:
            store.delete(shards[number])
    again = lab.prepare()
    assert again["digest"] == first["digest"]
    assert again["shards"]["reused"] == SHARDS - len(gone)
    lab.check()


def test_receipts_of_another_version_of_larder_are_ignored(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path)
    first = lab.prepare()
    storage = tmp_path / "local"
    with opened(storage) as store:
        keys = [info.key for page in store.list() for info in page]
        for key in keys:
            if "/versions/" in key or key.endswith("segment.json"):
                store.delete(key)
            elif "/work/" in key and key.endswith(".json"):
                plain = {**unseal(store.get(key), key), "new": 1}
                store.put(key, seal({**plain, "shards": [{"new": 1}]}))
    again = lab.prepare()
    assert again["digest"] == first["digest"]
    assert again["shards"]["reused"] == 0
    lab.check()
