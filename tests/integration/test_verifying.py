"""A verification finds and names every kind of damage to every file of a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pipeline_lab import Lab
from required import at_night
from verify_lab import DAMAGES, damaged, findings, grown_lab, listed_files, published, sibling_of
from verify_lab import verified as verify

from larder.errors import ConfigError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import seal, unseal
from larder.store.base import Store
from larder.versions import layout
from larder.versions.index import read_shards
from larder.versions.publish import existing_segment
from larder.versions.rows import INDEXED, read_rows
from tests.support.errors import larder_error
from tests.support.packing import write_index
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


@pytest.mark.parametrize(
    "damage", at_night(*DAMAGES, but=("middle byte flipped", "truncated by one"))
)
@pytest.mark.push
def test_every_damage_to_every_file_is_found(lab, root, version, damage):
    files = published(root)
    names = listed_files(root, version)
    suffixes = {name.rpartition(".")[2] for name in names}
    assert suffixes == {"json", "parquet", "npz", "mdb", "tar", "idx"}
    for key in names:
        wrong = DAMAGES[damage](files[key], files[sibling_of(key, files)])
        assert wrong != files[key]
        with damaged(root, key, wrong):
            found = findings(verify(lab))
            assert key in found, f"{damage} of {key}: {sorted(found)}"
            assert found[key]["code"].startswith("damage.")
            own = {path for path, row in found.items() if row["role"] != "content"}
            assert own == {key}, f"{damage} of {key}: {sorted(own)}"
    assert verify(lab)["status"] == "intact"


def test_every_version_can_be_verified_by_tag_or_id(lab, root, version):
    ids = {key.split("/")[1] for key in published(root) if key.startswith("versions/")}
    assert len(ids) == 2
    assert verify(lab, version="latest")["version"] == version
    for each in ids:
        for name in (each, each[:8]):
            document = verify(lab, version=name)
            assert (document["version"], document["status"]) == (each, "intact")
    for unknown in ("v1", "0" * 32, ""):
        with larder_error("version.missing") as caught:
            verify(lab, version=unknown)
        assert "latest" in caught.value.hint


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


INDEX_CHANGES: dict[str, tuple[Callable[[list[Any], list[Any]], object], str]] = {
    "label": (
        lambda rows, _: rows[-1].update(label=(rows[-1]["label"] + 1) % 3),
        "is not its label",
    ),
    "crc32c": (lambda rows, _: rows[-1]["parts"][-1].update(crc32c=1), "differ from the index"),
    "beyond": (lambda rows, _: rows[-1]["parts"][-1].update(offset=10**9), "outside of its sample"),
    "shard": (lambda rows, _: rows[-1].update(shard="d-train-000000.tar"), "another shard"),
    "fewer": (lambda rows, _: rows.clear(), "the index has 0 samples"),
    "many": (lambda _, shards: shards.append(shards.pop()._replace(samples=2**40)), "not 1,099"),
}


@pytest.mark.push
@pytest.mark.parametrize("change", INDEX_CHANGES)
def test_an_index_that_says_something_else_is_found(lab, root, version, change, tmp_path):
    """Also if all digests were made to agree."""
    alter, message = INDEX_CHANGES[change]
    key = next(key for key in listed_files(root, version) if "/index/rows-" in key)
    segment = key.split("/")[1]
    rows_file = existing_segment(root, segment).file("rows")
    rows = [row for batch in read_rows(root, rows_file) for row in batch.to_pylist()]
    shards = read_shards(root, rows_file)
    alter(rows, shards)
    changed = [pa.RecordBatch.from_pylist(rows, schema=INDEXED)]
    data = write_index(tmp_path, changed, shards).path.read_bytes()
    other = layout.index_key(segment, "rows", sha256_hex(data))

    def facts(plain: dict[str, Any]) -> None:
        for file in plain["files"]:
            if file["path"] == key:
                file.update(path=other, bytes=len(data), sha256=sha256_hex(data))

    documents = [f"segments/{segment}/segment.json", f"versions/{version}/version.json"]
    with (
        damaged(root, documents[0], resealed(root, documents[0], facts)),
        damaged(root, documents[1], resealed(root, documents[1], facts)),
    ):
        root.put(other, data)
        try:
            document = verify(lab)
        finally:
            root.delete(other)
    content = [row for row in document["findings"] if row["role"] == "content"]
    assert [row for row in content if message in row["message"]], document["findings"]
