"""A verification finds and names every kind of damage to every file of a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pipeline_lab import Lab
from verify_lab import DAMAGES, damaged, findings, grown_lab, listed_files
from verify_lab import verified as verify

from larder.errors import ConfigError
from larder.manifest.sealed import seal, unseal
from larder.store.base import Store
from tests.support.runs import between
from tests.support.stores import Recorder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return grown_lab(tmp_path_factory.mktemp("grown"))


@pytest.fixture(scope="module")
def root(lab: Lab) -> Any:
    with lab.opened_root() as store:
        yield store


@pytest.fixture(scope="module")
def version(lab: Lab) -> str:
    return str(verify(lab)["version"])


FOREIGN = [
    "segments/SEGMENT/shards/notes.txt",
    "segments/SEGMENT/index/sources-0123456789abcdef.parquet",
    "segments/SEGMENT/caches/CACHE/train-0123456789abcdef.mdb",
    "segments/SEGMENT/zzz.txt",
    "segments/SEGMENT/a",
    "versions/VERSION/notes",
    "tags/notes.txt",
    "tags/sub/v1.json",
    "tags/latest",
]
NOT_FOREIGN = [
    "segments/SEGMENT/work/anything",
    "segments/SEGMENT/caches/0123456789abcdef0123456789abcdef/unfinished.mdb",
    "work/x",
    "mirror/x",
    "leases/x.json",
    "segments/0123456789abcdef0123456789abcdef/shards/train/unfinished.tar",
]


@pytest.mark.parametrize("pattern", FOREIGN + NOT_FOREIGN)
def test_foreign_files_are_named_and_never_deleted(lab, root, version, pattern):
    cache = next(key for key in listed_files(root, version) if key.endswith("cache.json"))
    _, segment, _, name, _ = cache.split("/")
    key = pattern.replace("SEGMENT", segment).replace("CACHE", name).replace("VERSION", version)
    root.put(key, b"?")
    try:
        document = verify(lab, repair=True)
        if pattern in NOT_FOREIGN:
            assert document["status"] == "intact"
            return
        (finding,) = document["findings"]
        assert (finding["path"], finding["code"]) == (key, "damage.foreign")
        assert "delete it" in finding["message"]
        assert bytes(root.get(key)) == b"?"
    finally:
        root.delete(key)


def test_a_part_of_it_is_a_seeded_choice(lab, root, version):
    whole = verify(lab)["read"]

    def requested(percent: float, seed: int) -> set[str]:
        with between(recorder := Recorder()):
            read = verify(lab, sample_percent=percent, seed=seed)["read"]
        assert (read["sample_percent"], read["seed"], read["of"]) == (percent, seed, whole["of"])
        keys = recorder.keys("open", "get")
        large = [key for key in keys if key.endswith((".tar", ".mdb", ".idx"))]
        assert len(large) == len(set(large)) == read["count"]
        return set(large)

    chosen = requested(1.0, 7)
    assert requested(1.0, 7) == chosen
    assert len(chosen) == 5, "a shard of each of two splits, with its index, and one cache file"
    assert len({frozenset(requested(1.0, seed)) for seed in range(4)}) > 1
    assert len(requested(100.0, 7)) == whole["count"]
    shards = [key for key in listed_files(root, version) if key.endswith(".tar")]
    for key in shards:
        wrong = DAMAGES["middle byte flipped"](bytes(root.get(key)), b"")
        with damaged(root, key, wrong):
            found = findings(verify(lab, sample_percent=1.0, seed=7))
        assert bool(found) == (key in chosen)
    with damaged(root, next(key for key in shards if key not in chosen), None):
        assert findings(verify(lab, sample_percent=1.0, seed=7))


@pytest.mark.parametrize(
    "asked",
    [
        *({"sample_percent": wrong} for wrong in (0, -1, 100.5, float("nan"), float("inf"))),
        {"sample_percent": 5, "seed": -1},
        {"sample_percent": 5, "repair": True},
    ],
    ids=str,
)
def test_parts_that_cannot_be_asked_for(lab, asked):
    with pytest.raises(ConfigError):
        verify(lab, **asked)


def test_every_file_is_requested_once_and_nothing_is_written(lab, version):
    recorder = Recorder()
    with between(recorder):
        assert verify(lab)["status"] == "intact"
    assert not recorder.writes
    calls = recorder.calls
    opened = Counter(call.key for call in calls if call.method in ("open", "get"))
    large = {key: count for key, count in opened.items() if key.endswith((".tar", ".mdb", ".idx"))}
    assert len(large) == verify(lab)["read"]["count"]
    assert set(large.values()) == {1}
    # Manifests once, documents at most three times (unsealed, parsed, and as what caches name),
    # the index once for its digest and by ranges, which are mapped.
    assert max(opened.values()) <= 4
    segments = sum(key.endswith("segment.json") for key in opened)
    # Tags, the version, and two listings of each segment.
    assert sum(call.method == "list" for call in calls) <= 2 * (2 + 2 * segments) + 4


def resealed(root: Store, key: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    plain = unseal(bytes(root.get(key)), key)
    change(plain)
    return seal(plain)


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "samples": lambda plain: plain["splits"]["train"].update(samples=99),
    "bytes": lambda plain: plain["splits"]["train"].update(bytes=99),
    "omitted": lambda plain: plain["splits"]["train"].update(omitted=9),
    "patterns": lambda plain: plain["splits"]["train"].update(
        patterns=plain["splits"]["train"]["patterns"][-1:], shards=1
    ),
    "digest": lambda plain: plain.update(digest="0" * 64),
    "classes": lambda plain: plain.update(classes=["a"]),
    "files": lambda plain: plain["files"].reverse(),
    "cache": lambda plain: plain["cache"]["splits"].pop("train"),
}


def test_a_split_that_only_its_cache_has_is_found(lab, root, version):
    key = next(key for key in listed_files(root, version) if key.endswith("segment.json"))
    with damaged(root, key, resealed(root, key, lambda plain: plain["splits"].pop("validation"))):
        messages = [row["message"] for row in verify(lab, repair=True)["findings"]]
    assert any("does not have a record for each sample" in message for message in messages)


@pytest.mark.parametrize("change", CHANGES)
def test_figures_that_do_not_agree_are_found(lab, root, version, change):
    key = f"versions/{version}/version.json"
    with damaged(root, key, resealed(root, key, CHANGES[change])):
        document = verify(lab, repair=True)
    assert document["status"] == "damaged"
    assert {row["role"] for row in document["findings"]} <= {"content", "foreign", "document"}
    assert key in findings(document)
