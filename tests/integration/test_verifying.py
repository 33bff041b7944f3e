"""What a verification finds in versions, beside them, and in the place of files."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab
from verify_lab import (
    DAMAGES,
    damaged,
    findings,
    forget_replaced,
    grown_lab,
    listed_files,
    published,
    verified,
)

from larder.errors import ConfigError, ObjectError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import seal, unseal
from larder.store.base import Store
from larder.verify.verifying import verify_lines
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import FaultyStore, KeyStop, Recorder, unreadable


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return grown_lab(tmp_path_factory.mktemp("grown"))


@pytest.fixture(scope="module")
def root(lab: Lab) -> Any:
    with lab.opened_root() as store:
        yield store


@pytest.fixture(scope="module")
def version(lab: Lab) -> str:
    return str(verified(lab)["version"])


def filled(root: Store, version: str, pattern: str) -> str:
    """A key with the IDs of a version, and of a segment and a cache of it."""
    cache = next(key for key in listed_files(root, version) if key.endswith("cache.json"))
    _, segment, _, name, _ = cache.split("/")
    return pattern.replace("SEGMENT", segment).replace("CACHE", name).replace("VERSION", version)


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
    key = filled(root, version, pattern)
    root.put(key, b"?")
    try:
        document = verified(lab, repair=True)
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
    whole = verified(lab)["read"]

    def requested(percent: float, seed: int) -> set[str]:
        with between(recorder := Recorder()):
            read = verified(lab, sample_percent=percent, seed=seed)["read"]
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
            found = findings(verified(lab, sample_percent=1.0, seed=7))
        assert bool(found) == (key in chosen)
    with damaged(root, next(key for key in shards if key not in chosen), None):
        assert findings(verified(lab, sample_percent=1.0, seed=7))


@pytest.mark.parametrize(
    "asked",
    [
        *({"sample_percent": wrong} for wrong in (0, -1, 100.5, float("nan"), float("inf"))),
        {"sample_percent": 5, "repair": True},
    ],
    ids=str,
)
def test_parts_that_cannot_be_asked_for(lab, asked):
    with pytest.raises(ConfigError):
        verified(lab, **asked)


def test_every_file_is_requested_once_and_nothing_is_written(lab, version):
    recorder = Recorder()
    with between(recorder):
        assert verified(lab)["status"] == "intact"
    assert not recorder.writes
    calls = recorder.calls
    opened = Counter(call.key for call in calls if call.method in ("open", "get"))
    large = {key: count for key, count in opened.items() if key.endswith((".tar", ".mdb", ".idx"))}
    assert len(large) == verified(lab)["read"]["count"]
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
        messages = [row["message"] for row in verified(lab, repair=True)["findings"]]
    assert any("does not have a record for each sample" in message for message in messages)


@pytest.mark.parametrize("name", ["segment.json", "cache.json"])
def test_a_damaged_document_is_the_only_finding(lab, root, version, name):
    """Nothing is compared with a document that cannot be read."""
    key = next(key for key in listed_files(root, version) if key.endswith(name))
    with damaged(root, key, b"{}"):
        assert set(findings(verified(lab, repair=True))) == {key}


def test_a_segment_that_names_other_files_is_found(lab, root, version):
    key = next(key for key in listed_files(root, version) if key.endswith("segment.json"))
    with damaged(root, key, resealed(root, key, lambda plain: plain["files"].reverse())):
        assert set(findings(verified(lab, repair=True))) == {key}


@pytest.mark.parametrize("change", CHANGES)
def test_figures_that_do_not_agree_are_found(lab, root, version, change):
    key = f"versions/{version}/version.json"
    with damaged(root, key, resealed(root, key, CHANGES[change])):
        document = verified(lab, repair=True)
    assert document["status"] == "damaged"
    assert {row["role"] for row in document["findings"]} <= {"content", "foreign", "document"}
    assert key in findings(document)


KINDS = ("latest.json", "version.json", "segment.json", "cache.json", "classes.json")


SUFFIXES = (".tar", ".mdb", ".idx", ".parquet")


@pytest.fixture(scope="module")
def some(root: Store, version: str) -> list[str]:
    names = listed_files(root, version)
    return [next(name for name in names if name.endswith(end)) for end in (*KINDS, *SUFFIXES)]


def _full_folder(path: Path) -> None:
    path.mkdir()
    path.joinpath("notes.txt").write_bytes(b"?")


REPLACED: dict[str, Callable[[Path], None]] = {
    "folder": lambda path: path.mkdir(),
    "folder with a file": _full_folder,
    "pipe": lambda path: os.mkfifo(path),
}


@contextmanager
def replaced(path: Path, make: Callable[[Path], None]) -> Iterator[None]:
    before = path.read_bytes()
    path.unlink()
    make(path)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        path.write_bytes(before)


@pytest.mark.push
@pytest.mark.parametrize("what", REPLACED)
def test_what_is_no_file_is_a_missing_file(lab, some, what):
    for key in some:
        with replaced(lab.folder / key, REPLACED[what]):
            found = findings(verified(lab))
            assert found[key]["message"].startswith("the file is missing"), f"{what} for {key}"
            others = {row["role"] for path, row in found.items() if path != key}
            assert others <= {"content", "foreign"}
            repair = findings(verified(lab, repair=True))[key]["repair"]
            assert not repair["done"]
            if not key.endswith(".json") or key.endswith("classes.json"):
                assert "move what is in its place elsewhere" in repair["message"]
    assert verified(lab)["status"] == "intact"


@pytest.mark.push
@pytest.mark.parametrize("name", [b"shards/train/link", b"index/link", b"shards/\xff"])
def test_what_cannot_be_listed_is_refused(lab, root, version, name):
    segment = next(key for key in listed_files(root, version) if key.endswith(".tar")).split("/")[1]
    place = os.path.join(os.fsencode(lab.folder), b"segments", segment.encode(), name)
    if name.endswith(b"link"):
        os.symlink(b"/nonexistent/file", place)
    else:
        Path(os.fsdecode(place)).write_bytes(b"?")
    try:
        for repair in (False, True):
            with pytest.raises(ObjectError, match="segments/"):
                verified(lab, repair=repair)
    finally:
        os.unlink(place)
    assert verified(lab)["status"] == "intact"


@pytest.mark.push
def test_a_bad_sector_is_found_in_every_kind_of_file(lab, root, some):
    """A file that cannot be read is one finding; in a bucket it would be a refusal of access."""
    files = published(root)
    for key in some:

        def broken(store: Store, key: str = key) -> Store:
            faulty = FaultyStore(store)
            for method in ("open", "get", "head"):
                faulty.add(method, unreadable(), key=key, times=None)
            return faulty

        with between(broken):
            found = findings(verified(lab))
            assert "cannot be read completely" in found[key]["message"], f"{key}: {found}"
            repair = findings(verified(lab, repair=True))[key]["repair"]
            assert repair["done"] or repair["message"]
        assert published(root) == files
    forget_replaced(root)


@pytest.mark.push
@pytest.mark.parametrize("end", [".idx", "classes.json", ".mdb"])
def test_a_storage_that_cannot_be_written_ends_a_repair(lab, root, version, end):
    key = next(key for key in listed_files(root, version) if key.endswith(end))
    wrong = bytes(root.get(key))[:-2]

    def refusing(store: Store) -> Store:
        faulty = FaultyStore(store)
        for method in ("upload", "writer") if store.url == root.url else ():
            faulty.add(method, unreadable(), times=None)
        return faulty

    with damaged(root, key, wrong):
        with between(refusing), larder_error("store.denied"):
            verified(lab, repair=True)
        assert bytes(root.get(key)) == wrong
    forget_replaced(root)


ALTERED: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "version": ("version.json", lambda plain: plain.update(format="larder-version-9"), "newer"),
    "cache": ("cache.json", lambda plain: plain.update(format="larder-segment-cache-2"), "newer"),
    "shards": (
        "segment.json",
        lambda plain: plain["shape"].update(format="arrayrecord"),
        "there is no shard format 'arrayrecord'; use a newer Larder",
    ),
    "tag": ("latest.json", lambda plain: plain.update(version=3), "it names no version"),
    "path": ("latest.json", lambda plain: plain.update(version="../../x"), "it names no version"),
}


@pytest.mark.push
@pytest.mark.parametrize("what", ALTERED)
def test_a_document_of_a_newer_larder_is_left_alone(lab, root, version, what):
    """Its own digest is right: restoring it from that would go on for ever."""
    end, change, message = ALTERED[what]
    key = next(key for key in listed_files(root, version) if key.endswith(end))
    plain = unseal(bytes(root.get(key)), key)
    change(plain)
    with damaged(root, key, seal(plain)):
        document = verified(lab, repair=True)
        found = findings(document)[key]
        assert message in found["message"]
        assert not (found["repair"] and found["repair"]["done"])
        assert bytes(root.get(key)) == seal(plain)


@pytest.mark.push
def test_another_tag_that_is_lost_is_not_made_to_name_a_version(lab, root):
    (version, *_) = {key.split("/")[1] for key in published(root) if key.startswith("versions/")}
    root.put("tags/v1.json", b"gone")
    try:
        document = verified(lab, version=version, repair=True)
        message = findings(document)["tags/v1.json"]["repair"]["message"]
        assert message.endswith("restore it, or delete it")
    finally:
        root.delete("tags/v1.json")


UNUSED = [
    "segments/SEGMENT/index/sources-DIGEST.parquet",
    "segments/SEGMENT/index/rows-DIGEST.npz",
    "segments/SEGMENT/caches/CACHE/train-DIGEST.mdb",
    "versions/VERSION/manifests/omitted-DIGEST.npy",
    "versions/VERSION/lists/train-DIGEST.txt",
]


@pytest.mark.push
@pytest.mark.parametrize("pattern", UNUSED)
def test_what_another_run_left_proves_itself_and_is_no_damage(lab, root, version, pattern):
    data = b"of the other of two runs"
    key = filled(root, version, pattern).replace("DIGEST", sha256_hex(data)[:16])
    root.put(key, data)
    try:
        document = verified(lab, repair=True)
        assert (document["status"], document["findings"]) == ("intact", [])
        assert document["unused"] == {"files": 1, "bytes": len(data), "keys": [key]}
        assert f"  unused   1 file, {len(data)} B: {key};" in "\n".join(verify_lines(document))
        root.put(key, data + b"?")
        (finding,) = verified(lab)["findings"]
        assert "do not match the digest in its name" in finding["message"]
    finally:
        root.delete(key)


@pytest.mark.push
def test_a_run_that_was_stopped_before_its_source_was_touched_is_no_damage(tmp_path):
    """Its inventory stays beside that of the run that published the version."""
    lab = grown_lab(tmp_path, cache=None)
    with lab.opened_root() as root:
        keep = {key for key in published(root) if key.startswith(("versions/", "tags/"))}
        for path in Path(str(lab.source)).rglob("*"):
            if path.is_file():
                os.utime(path, (1, 1))
        for key in keep:
            if key.endswith("version.json") or key.startswith("tags/"):
                root.delete(key)
        lab.prepare()
        document = verified(lab)
        assert document["status"] == "intact", document["findings"]


@pytest.mark.push
def test_a_dataset_whose_first_run_was_stopped_has_no_version(tmp_path):
    fields = {"cache": None, "validate": "none", "mirror": False}
    lab = directory_lab(tmp_path, {"a/0.txt": b"0", "b/1.txt": b"1"}, **fields)
    for end in ("segment.json", "version.json"):
        assert lab.stopped(KeyStop(end)) is None
        with larder_error("version.missing") as caught:
            verified(lab, repair=True)
        assert "prepare" in caught.value.hint
    assert lab.stopped(KeyStop("latest.json")) is None
    version = next(lab.folder.glob("versions/*")).name
    assert version in findings(verified(lab))["tags/latest.json"]["message"]
