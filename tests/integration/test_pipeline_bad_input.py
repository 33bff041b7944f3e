"""Bad input: one line that says what, why and what to do; nothing published, nothing lost."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, png, write
from required import at_night, at_push, disk_of

import larder
from larder.errors import CODES, FatalError, LarderError
from larder.jobs.results import RefusedError, RunError
from larder.pipeline.advise import advise
from larder.pipeline.prepare import prepare
from larder.store.base import ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import (
    Fail,
    FaultyStore,
    full,
    unavailable,
    unreadable,
)


def refused(lab: Lab, **fields: Any) -> LarderError:
    """The error of a run, after which what was published before is as it was."""
    before = {version: found.shards for version, found in lab.check().items()}
    with pytest.raises(LarderError) as caught:
        lab.prepare(**fields)
    error = caught.value
    assert {version: found.shards for version, found in lab.check().items()} == before
    assert error.code in CODES
    assert "\n" not in str(error)
    assert error.hint, "it says no way out"
    assert not str(error).startswith((":", ";"))
    return error


def failures(lab: Lab, **fields: Any) -> dict[str, str]:
    """Code by key of the objects that a run failed for."""
    error = refused(lab, **fields)
    assert isinstance(error, RunError)
    assert error.exit_status == 1
    assert error.code == "run.failed"
    assert len(error.report.failures) == error.report.failed
    for failure in error.report.failures:
        assert failure.key in failure.message
        assert "\n" not in failure.message
    return {failure.key: failure.code for failure in error.report.failures}


def run_error(lab: Lab, **fields: Any) -> LarderError | None:
    try:
        lab.prepare(**fields)
    except LarderError as error:
        return error
    return None


def status(error: LarderError | None) -> tuple[str, int]:
    assert error is not None
    return error.code, error.exit_status


# Objects that cannot be had


def faulty(faults: Callable[[FaultyStore], None], url: str) -> Callable[[Store], Store]:
    """Wraps the stores at a URL."""

    def wrap(store: Store) -> Store:
        if not store.url.startswith(url):
            return store
        spoilt = FaultyStore(store)
        faults(spoilt)
        return spoilt

    return wrap


def test_objects_that_may_not_be_read_are_all_listed(tmp_path):
    lab = directory_lab(tmp_path, mirror=True)

    def faults(store: FaultyStore) -> None:
        for key in ("a/00.png", "c/02.png"):
            for method in ("get", "open"):
                store.add(method, Fail(unreadable_at(store, key)), key=key, times=None)

    for mirror in (True, False):
        with between(faulty(faults, f"file://{lab.source}")):
            assert failures(lab, mirror=mirror) == {
                "a/00.png": "object.unreadable",
                "c/02.png": "object.unreadable",
            }
    assert lab.prepare()["copied"]["count"] == 2


def unreadable_at(store: Store, key: str) -> LarderError:
    error = unreadable().error
    assert isinstance(error, LarderError)
    return type(error)(error.code, error.message, where=store.url + key, hint=error.hint)


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A directory of a user who is not root, as whom the rest of the test runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory_lab(folder / "before").prepare()  # imports what root alone may read
        if os.geteuid():
            yield folder
            return
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(0)


def test_a_file_that_may_not_be_read(nobody):
    lab = directory_lab(nobody)
    Path(str(lab.source), "b/01.png").chmod(0)
    for mirror in (True, False):
        assert failures(lab, mirror=mirror) == {"b/01.png": "object.unreadable"}


@pytest.mark.parametrize(
    "name", ["local", *at_push("local/larder/d/segments", "local/larder/d/mirror/a")]
)
def test_a_local_side_that_may_not_be_written(nobody, name):
    lab = directory_lab(nobody, mirror=True)
    (nobody / name).mkdir(parents=True)
    (nobody / name).chmod(0o555)
    error = refused(lab)
    (nobody / name).chmod(0o755)
    if name != "local/larder/d/mirror/a":
        assert status(error) == ("store.denied", 3)
    assert lab.prepare()["shards"]["samples"] == 12


@pytest.mark.parametrize("mirror", [True, False])
def test_objects_that_change_or_vanish_once_they_are_listed(tmp_path, mirror):
    lab = directory_lab(tmp_path, mirror=mirror)
    source = str(lab.source)

    class Tampering(DelegatingStore):
        def list(self, prefix: str = "", **options: Any) -> Iterator[list[ObjectInfo]]:
            yield from self.inner.list(prefix, **options)
            write(source, {"a/00.png": png(5), "a/01.png": b"short"})
            lab.remove("b/03.png")

    with between(lambda store: Tampering(store) if store.url == f"file://{source}/" else store):
        found = failures(lab)
    assert found == {
        "a/00.png": "object.changed",
        "a/01.png": "object.changed",
        "b/03.png": "object.missing",
    }
    write(source, {"a/01.png": png(6)})
    assert lab.prepare()["shards"]["samples"] == 11


# Images that cannot be decoded

BROKEN: Mapping[str, bytes] = {
    "a/01.png": b"no image at all",
    "b/02.png": png(102)[:60],
    "c/03.png": png(203)[:-40],
}
AT_SIGHT = {"a/01.png"}
EMPTY = {"b/00.png": b""}


@pytest.mark.parametrize("validate", ["header", "decode"])
@pytest.mark.parametrize("mirror", [True, *at_push(False)])
def test_images_that_cannot_be_decoded_are_all_named(tmp_path, validate, mirror):
    lab = directory_lab(tmp_path, images() | BROKEN, validate=validate, mirror=mirror, cache=None)
    found = failures(lab)
    assert set(found.values()) == {"sample.undecodable"}
    assert set(found) >= AT_SIGHT
    if validate == "decode":
        assert set(found) == set(BROKEN)


@pytest.mark.parametrize("validate", ["header", "decode"])
def test_images_without_bytes_are_refused_before_anything_is_copied(tmp_path, validate):
    objects = images() | EMPTY | {"c/01.seg.JPEG": b"", "c/01.txt": b""}
    lab = directory_lab(tmp_path, objects, validate=validate, cache=None)
    error = refused(lab)
    assert status(error) == ("sample.empty", 2)
    assert isinstance(error, RefusedError)
    assert [failure.key for failure in error.report.failures] == ["b/00.png", "c/01.seg.JPEG"]
    assert error.report.failed == 2
    assert not (tmp_path / "local").exists()
    with pytest.raises(RefusedError):
        lab.plan()
    assert lab.prepare(on_bad_sample="skip")["skipped"] == 2


@pytest.mark.parametrize("batch_bytes", [1, *at_push(10**9)])
def test_images_that_are_left_out(tmp_path, batch_bytes):
    """The others are in the shards that were planned for them, and the cache agrees."""
    fields = {
        "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
        "cluster": {"runner": {"batch_bytes": batch_bytes}},
        "shards": {"bytes": 1},
    }
    whole = directory_lab(tmp_path / "1", **fields)
    whole.prepare()
    broken = BROKEN | EMPTY
    lab = directory_lab(tmp_path / "2", images() | broken, on_bad_sample="skip", **fields)
    document = lab.prepare()
    assert document["skipped"] == 4
    assert {failure["key"]: failure["code"] for failure in document["failures"]} == dict.fromkeys(
        broken, "sample.undecodable"
    )
    assert document["shards"]["samples"] == document["cache"]["records"] == 8
    published = lab.only()
    of_whole = {path.rpartition("/")[2]: digest for path, digest in whole.only().shards.items()}
    for path, digest in published.shards.items():
        assert of_whole[path.rpartition("/")[2]] == digest
    assert len(published.shards) == len(of_whole) - len(broken)
    data = larder.open(f"{lab.storage}/larder/d")
    assert len(data.shards("train")) + len(data.shards("validation")) == len(published.shards)
    assert lab.prepare()["status"] == "reused"


def test_nothing_is_left_when_every_image_is_broken(tmp_path):
    lab = directory_lab(tmp_path, {"a/1.png": b"x", "b/2.png": b"y"}, on_bad_sample="skip")
    error = refused(lab)
    assert status(error) == ("run.failed", 1)


# Disks and buckets


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of a size."""
    with disk_of(request.param, tmp_path / "disk") as place:
        yield place


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("disk", ["256k"], indirect=True)
def test_what_does_not_fit_is_refused_before_work_begins(tmp_path, disk, mirror):
    size_bytes = 45_000 if mirror else 90_000
    objects = {f"a/{number}.bin": os.urandom(size_bytes) for number in range(4)}
    lab = directory_lab(tmp_path, objects, mirror=mirror, labels=None, cache=None, validate="none")
    lab = Lab(lab.source, str(disk / "local"), lab.output, lab.fields)
    for error in (refused(lab), run_error(lab)):
        assert status(error) == ("store.full", 3)
    assert advise(lambda **_: lab.settings())["status"] == "planned"
    assert not [*disk.rglob("*.tar"), *disk.rglob("*.bin")]


def test_what_an_interrupted_run_has_written_is_not_asked_for_again(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, mirror=True, cache=None)
    other = Lab(lab.source, str(tmp_path / "other"), lab.output, lab.fields)
    other.prepare()
    last = other.files("*.tar")[-1].relative_to(other.folder).as_posix()
    planned = lab.plan()
    total_bytes = planned["copied"]["bytes"] + planned["shards"]["bytes"]
    with between(faulty(lambda store: store.add("commit", full(), key=last), lab.root)):
        assert run_error(lab)
    written = sum(path.stat().st_size for path in lab.files("*.tar"))
    assert 0 < written < planned["shards"]["bytes"]
    mirrored = sum(path.stat().st_size for path in lab.files("mirror/*/*"))
    assert mirrored == planned["copied"]["bytes"]
    missing = total_bytes - mirrored - written
    usage = shutil.disk_usage(lab.folder)._replace(free=missing)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    lab.plan()
    usage = usage._replace(free=missing - 1)
    with larder_error("store.full"):
        lab.plan()
    monkeypatch.undo()
    assert lab.prepare()["shards"]["samples"] == 12


@pytest.mark.parametrize(
    "filled", [200, 220, 240, *at_push(100, 228, 350), *at_night(150, 212, 236, 250, 300)]
)
@pytest.mark.parametrize("disk", ["384k"], indirect=True)
def test_a_disk_that_is_really_full(tmp_path, disk, filled):
    """What a full disk has left over fits beside a whole run."""
    lab = directory_lab(tmp_path, mirror=True)
    lab = Lab(lab.source, str(disk / "local"), lab.output, lab.fields)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(filled * 1024))
    error = run_error(lab)
    if error is not None:
        assert status(error) == ("store.full", 3)
        # A complete version is there if only its tag had no room.
        assert lab.check() == {} or error.where.endswith("/tags/latest.json")
    ballast.unlink()
    if filled > 203:
        assert error is not None
    assert lab.prepare()["shards"]["samples"] == 12
    lab.check()


@pytest.mark.parametrize("side", ["source", "local"])
def test_a_bucket_that_goes_on_answering_503(tmp_path, side):
    """Here the store is out of retries."""
    lab = directory_lab(tmp_path)
    url = f"file://{lab.source}" if side == "source" else lab.root
    for method in ("list", "get", "open", "put", "upload", "writer", "commit"):
        with between(faulty(lambda store: store.add(method, unavailable()), url)):  # noqa: B023
            error = run_error(lab)
        if error is not None:
            assert status(error) == ("store.unavailable", 3)
    assert lab.prepare()["shards"]["samples"] == 12
    lab.check()


# Keys


def test_a_key_that_a_file_cannot_have(tmp_path):
    long = "k" * 996 + ".txt"
    write("memory://long", {long: b"1", "a/b.txt": b"2", "a/b.txt/c.txt": b"3"})
    fields = {"labels": None, "cache": None, "on_bad_key": "skip", "mirror": True}
    lab = replace(directory_lab(tmp_path, {}, **fields), source="memory://long")
    error = refused(lab)
    assert status(error) == ("config.bad_key", 2)
    assert isinstance(error, RefusedError)
    found = {failure.key: failure.code for failure in error.report.failures}
    assert found == dict.fromkeys([long, "a/b.txt/c.txt"], "object.bad_key")
    assert error.report.failed == 2
    assert not (tmp_path / "local").exists(), "it was refused before anything was copied"
    with pytest.raises(RefusedError) as caught:
        lab.plan()
    assert str(caught.value) == str(error)
    write("memory://longer", {long: b"1"})
    lab = directory_lab(tmp_path / "2", {}, labels=None, cache=None, mirror=False)
    lab = replace(lab, source="memory://longer")
    lab.prepare()
    assert lab.only().samples["train"][0].key == "k" * 996


def test_two_images_of_a_sample_that_would_be_one_field_of_the_cache(tmp_path):
    objects = images() | {"a/00.jpg": png(7), "b/01.jpg": png(8), "b/01.seg.png": png(9)}
    lab = directory_lab(tmp_path, objects)
    error = refused(lab)
    assert status(error) == ("cache.schema", 2)
    assert isinstance(error, RefusedError)
    assert [failure.key for failure in error.report.failures] == ["a/00", "b/01"]
    assert not (tmp_path / "local").exists(), "it was refused before anything was copied"
    with pytest.raises(RefusedError):
        lab.plan()
    assert lab.prepare(cache={"records": "encoded"})["shards"]["samples"] == 12
    write(lab.source, {"c/02.seg.png": png(10)})
    excluded = {"url": lab.source, "exclude": ["**/*.jpg"]}
    grown = Lab(excluded, lab.storage, lab.output, lab.fields).settings()
    with pytest.raises(FatalError) as caught:  # the old segment still has the samples as they were
        prepare(grown)
    assert status(caught.value) == ("cache.schema", 1)
    assert prepare(replace(grown, compact=True))["cache"]["records"] == 12


# The dataset file


def test_configs_that_cannot_be_written(tmp_path):
    lab = directory_lab(tmp_path)
    lab.output.write_text("a file")
    error = run_error(lab)
    assert status(error) == ("config.path", 2)
    assert not Path(str(lab.storage)).exists()
    lab.output.unlink()
    assert lab.prepare()["status"] == "built"


def test_paths_that_cannot_be_listed_are_failures_unless_they_are_excluded(tmp_path):
    lab = directory_lab(tmp_path)
    source = Path(str(lab.source))
    (source / "b/link.png").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(source) + b"/b/caf\xe9.png")).write_bytes(b"")
    (source / "b/loop").symlink_to(source)
    os.mkfifo(source / "b/pipe.png")
    unlisted = {
        "b/caf\\xe9.png": "object.bad_key",
        "b/link.png": "object.unreadable",
        "b/loop/": "object.bad_key",
        "b/pipe.png": "object.unreadable",
    }
    assert failures(lab) == unlisted
    named = {"url": str(source), "exclude": ["b/link.png", "**/caf*", "b/loop/**", "b/pipe.png"]}
    built = replace(lab, source=named).prepare()
    assert (built["status"], built["skipped"]) == ("built", 0)
    assert failures(lab), "also where nothing else has changed"

    fresh = replace(lab, storage=str(tmp_path / "fresh"))
    skipped = fresh.prepare(on_bad_key="skip")
    assert skipped["skipped"] == 4
    assert {failure["key"] for failure in skipped["failures"]} == unlisted.keys()
    assert skipped["digest"] == built["digest"]
    assert fresh.prepare(on_bad_key="skip")["status"] == "reused"


def test_a_directory_that_may_not_be_listed_can_be_excluded_or_skipped(nobody):
    lab = directory_lab(nobody)
    (nobody / "source/b").chmod(0)
    try:
        assert failures(lab) == {"b/": "object.unreadable"}
        named = {"url": str(lab.source), "exclude": ["b/**"]}
        built = replace(lab, source=named).prepare()
        assert built["skipped"] == 0
        fresh = replace(lab, storage=str(nobody / "fresh"))
        skipped = fresh.prepare(on_bad_key="skip")
        assert [failure["key"] for failure in skipped["failures"]] == ["b/"]
        assert skipped["digest"] == built["digest"]
    finally:
        (nobody / "source/b").chmod(0o755)
