"""Bad input: one line that says what, why and what to do; nothing published, nothing lost."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
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
from larder.store.base import ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from larder.versions.tags import TAG, move_tag
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import (
    FaultyStore,
    full,
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
    assert status(error) == ("run.failed", 1)
    for failure in error.report.failures:
        assert failure.key in failure.message
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
        os.setresuid(65534, 65534, 0)  # os.access asks for the real user
        try:
            yield folder
        finally:
            os.setresuid(0, 0, 0)


def test_files_that_may_not_be_read_are_all_listed(nobody):
    lab = directory_lab(nobody)
    keys = ("b/01.png", "c/02.png")
    for key in keys:
        Path(lab.source, key).chmod(0)
    for mirror in (True, False):
        assert failures(lab, mirror=mirror) == dict.fromkeys(keys, "object.unreadable")


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
EMPTY = {"b/00.png": b""}


@pytest.mark.parametrize(("validate", "named"), [("header", {"a/01.png"}), ("decode", {*BROKEN})])
def test_images_that_cannot_be_decoded_are_all_named(tmp_path, validate, named):
    lab = directory_lab(tmp_path, images() | BROKEN, validate=validate, mirror=True, cache=None)
    found = failures(lab)
    assert set(found.values()) == {"sample.undecodable"}
    assert set(found) >= named


@pytest.mark.parametrize("batch_bytes", at_push(1, 10**9))
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
    assert status(refused(lab)) == ("run.failed", 1)


# Disks and buckets


@pytest.mark.parametrize("mirror", [True, *at_push(False)])
def test_what_does_not_fit_is_refused_before_work_begins(tmp_path, mirror):
    size_bytes = 45_000 if mirror else 90_000
    objects = {f"a/{number}.bin": os.urandom(size_bytes) for number in range(4)}
    lab = directory_lab(tmp_path, objects, mirror=mirror, labels=None, cache=None, validate="none")
    with disk_of("256k", tmp_path / "disk") as disk:
        lab = replace(lab, storage=str(disk / "local"))
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

    def failing(store: Store) -> Store:
        spoilt = FaultyStore(store)
        spoilt.add("commit", full(), key=last)
        return spoilt

    with between(failing):
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
    "filled", at_push(100, 200, 220, 228, 240, 350) + at_night(150, 212, 236, 250, 300)
)
def test_a_disk_that_is_really_full(tmp_path, filled):
    """What a full disk has left over fits beside a whole run."""
    with disk_of("384k", tmp_path / "disk") as disk:
        lab = replace(directory_lab(tmp_path, mirror=True), storage=str(disk / "local"))
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(filled * 1024))
        error = run_error(lab)
        if error is not None:
            assert status(error) == ("store.full", 3)
            # A complete version is there if only its tag had no room.
            assert lab.check() == {} or error.where.endswith("/tags/latest.json")
        ballast.unlink()
        assert error is not None or filled <= 203
        assert lab.prepare()["shards"]["samples"] == 12
        lab.check()


# Objects that are refused by name

LONG = "k" * 996 + ".txt"
REFUSED: dict[str, tuple[dict[str, bytes], dict[str, Any], str, list[str]]] = {
    "images without bytes": (
        images() | EMPTY | {"c/01.seg.JPEG": b"", "c/01.txt": b""},
        {"validate": "header", "cache": None},
        "sample.empty",
        ["b/00.png", "c/01.seg.JPEG"],
    ),
    "keys that a file cannot have": (
        {LONG: b"1", "a/b.txt": b"2", "a/b.txt/c.txt": b"3"},
        {"labels": None, "cache": None, "on_bad_key": "skip", "mirror": True},
        "config.bad_key",
        ["a/b.txt/c.txt", LONG],
    ),
    "two images of a sample that would be one field of the cache": (
        images() | {"a/00.jpg": png(7), "b/01.jpg": png(8), "b/01.seg.png": png(9)},
        {},
        "cache.schema",
        ["a/00", "b/01"],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_objects_are_refused_before_anything_is_copied(tmp_path, what):
    objects, fields, code, keys = REFUSED[what]
    source = f"memory://refused-{what.partition(' ')[0]}"
    write(source, objects)
    lab = replace(directory_lab(tmp_path, {}, **fields), source=source)
    error = refused(lab)
    assert status(error) == (code, 2)
    assert isinstance(error, RefusedError)
    assert sorted(failure.key for failure in error.report.failures) == keys
    assert error.report.failed == 2
    assert not (tmp_path / "local").exists()
    with pytest.raises(RefusedError) as caught:
        lab.plan()
    assert str(caught.value) == str(error)


def test_a_long_key_is_no_matter_if_no_file_has_it(tmp_path):
    write("memory://longer", {LONG: b"1"})
    lab = directory_lab(tmp_path, {}, labels=None, cache=None, mirror=False)
    lab = replace(lab, source="memory://longer")
    lab.prepare()
    assert lab.only().samples["train"][0].key == "k" * 996


def test_an_old_segment_may_not_fit_into_the_cache(tmp_path):
    lab = directory_lab(tmp_path, images() | {"a/00.jpg": png(7)})
    assert lab.prepare(cache={"records": "encoded"})["shards"]["samples"] == 12
    write(lab.source, {"c/02.seg.png": png(10)})
    grown = replace(lab, source={"url": lab.source, "exclude": ["**/*.jpg"]})
    with pytest.raises(FatalError) as caught:  # it still has the samples as they were
        grown.prepare()
    assert status(caught.value) == ("cache.schema", 1)
    assert grown.compact()["cache"]["records"] == 12


# The dataset file


def test_configs_that_cannot_be_written(tmp_path):
    lab = directory_lab(tmp_path)
    lab.output.write_text("a file")
    error = run_error(lab)
    assert status(error) == ("config.path", 2)
    assert not Path(str(lab.storage)).exists()
    below = replace(lab, output=lab.output / "a/b")
    assert status(run_error(below)) == ("config.path", 2)
    lab.output.unlink()
    lab.output.symlink_to("nowhere")
    assert status(run_error(lab)) == ("config.path", 2)
    assert not Path(str(lab.storage)).exists()
    lab.output.unlink()
    assert lab.prepare()["status"] == "built"


@pytest.mark.parametrize("mode", [0o000, 0o555, 0o666])
def test_a_directory_that_configs_may_not_be_written_into(nobody, mode):
    lab = directory_lab(nobody)
    closed = nobody / "closed"
    closed.mkdir()
    closed.chmod(mode)
    link = nobody / "link"
    link.symlink_to(closed / "a")
    with larder_error("config.path", str(link)):
        replace(lab, output=link).prepare()
    into = replace(lab, output=closed / "a/b")
    for run in (into.prepare, into.plan):
        with larder_error("config.path", str(closed)) as refused:
            run()
        assert "--output" in refused.value.hint
    if mode == 0o555:
        assert advise(lambda **_: into.settings())["status"] == "planned", "it writes no config"
    assert not Path(str(lab.storage)).exists()
    lab.prepare()
    with larder_error("config.path", str(closed)):
        into.prepare()  # of the version that exists


def test_configs_that_do_not_change_need_no_permission(nobody):
    lab = directory_lab(nobody)
    lab.prepare()
    lab.output.chmod(0o555)
    assert lab.prepare()["status"] == "reused"
    for path in Path(str(lab.source)).rglob("*.*"):
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))
    assert lab.prepare(description="other")["status"] == "reused"
    with lab.opened_root() as root:
        tag = lab.tag
        move_tag(root, TAG, tag.version, tag.inputs, tag.version, pin=True)
    lab.add({"a/new.png": png(99)})
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

    alone = {"url": str(source), "include": ["b/link.png"]}
    assert failures(replace(lab, source=alone)) == {"b/link.png": "object.unreadable"}

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
