"""What may stand in the place of a file, or beside it: each is named, and none ends the run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab
from verify_lab import (
    damaged,
    findings,
    forget_replaced,
    grown_lab,
    listed_files,
    published,
    verified,
)

from larder.errors import ObjectError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import seal, unseal
from larder.store.base import Store
from larder.verify.verify_report import verify_lines
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import FaultyStore, KeyStop, unreadable

pytestmark = pytest.mark.push

KINDS = ("latest.json", "version.json", "segment.json", "cache.json", "classes.json")
SUFFIXES = (".tar", ".mdb", ".idx", ".parquet")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return grown_lab(tmp_path_factory.mktemp("odd"))


@pytest.fixture(scope="module")
def root(lab: Lab) -> Iterator[Store]:
    with lab.opened_root() as store:
        yield store


@pytest.fixture(scope="module")
def version(lab: Lab) -> str:
    return str(verified(lab)["version"])


@pytest.fixture(scope="module")
def some(root: Store, version: str) -> list[str]:
    """A file of each kind."""
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
    """Within, something else stands in the place of a file."""
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


@pytest.mark.parametrize("pattern", UNUSED)
def test_what_another_run_left_proves_itself_and_is_no_damage(lab, root, version, pattern):
    cache = next(key for key in listed_files(root, version) if key.endswith("cache.json"))
    _, segment, _, name, _ = cache.split("/")
    data = b"of the other of two runs"
    own = pattern.replace("SEGMENT", segment).replace("CACHE", name).replace("VERSION", version)
    key = own.replace("DIGEST", sha256_hex(data)[:16])
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
