"""Copies: what is copied and what is not, and every request that it takes."""

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from copy_lab import PLACE, Calls, CopyLab, broken, buckets, calls, contents, directories, lab_of
from costs_lab import blob
from pipeline_lab import directory_lab, images, opened, png, write
from required import at_push, disk_of

from larder.copy.allowance import MIN_FAILURES
from larder.copy.copy_record import read_record
from larder.copy.copying import copy_lines
from larder.errors import DamageError, StoreError
from larder.jobs.results import RefusedError, RunError
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import FAILURES
from larder.manifest.sealed import StoredFile, seal
from larder.pipeline.preparing import prepare
from tests.support.errors import larder_error
from tests.support.runs import run_settings
from tests.support.stores import denied, unavailable, unreadable

OBJECTS = {
    f"{name}/{number:03}.bin": blob(f"{name}{number}", 10 + number)
    for name in "abZ"
    for number in range(20)
} | {"README": b"", "top/": b""}
KEY = "b/007.bin"
READS = ("get", "open", "copy_from")


@pytest.fixture(params=["directories", *at_push("buckets")])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CopyLab]:
    """Between buckets, etags prove what is there; between directories only receipts do."""
    objects = {key: data for key, data in OBJECTS.items() if not key.endswith("/")}
    with lab_of(request.param, tmp_path, objects) as made:
        yield made


def counts(made: Calls) -> Counter[str]:
    return Counter(call.method for call in made)


def own(made: Calls, *methods: str) -> list[str]:
    """The kinds of Larder's own files for which calls were made: their names without digests."""
    keys = [call.key for call in made if call.method in methods and call.key.startswith("_larder/")]
    return sorted(key.split("/")[2].partition("-")[0] for key in keys)


def test_everything_is_copied_once_and_the_record_says_how(lab):
    first, source, storage = calls(lab, lab.copy)
    assert lab.there() == contents(lab.source)
    assert (first["status"], first["copied"]["count"]) == ("copied", len(lab.there()))
    assert first["objects"] == first["copied"]
    assert first["same"] == {"count": 0, "bytes": 0}
    assert sum(first["checks"].values()) == len(lab.there())
    kinds = Counter(key.partition("-")[0] for key in lab.own())
    assert kinds == {PLACE.document: 1, "_larder/copy/manifest": 1}
    assert counts(source)["list"] == 1
    assert counts(source).keys() <= {"list", "get", "open", "copy_from"}
    heads = [call.key for call in storage if call.method == "head"]
    assert all(key.startswith("_larder/") for key in heads)  # manifests that are read in place
    assert own(storage, "put", "upload") == ["copy.json", "manifest", "receipts", "work"]
    assert own(storage, "delete") == ["receipts", "work"]


def test_without_changes_there_are_only_listings(lab):
    first = lab.copy()
    before = lab.own()
    again, source, storage = calls(lab, lab.copy)
    assert again["status"] == "current"
    assert again["copied"] == {"count": 0, "bytes": 0}
    assert again["same"] == again["objects"] == first["objects"]
    assert again["digest"] == first["digest"]
    assert again["manifest"] == first["manifest"]
    assert [(call.method, call.key) for call in source] == [("list", "")]
    heads = {"head": 1} if counts(storage)["head"] else {}  # a manifest that is read in place
    assert counts(storage) == {"list": 2, "get": 1, "open": 1, **heads}
    assert own(storage, "get", "open") == ["copy.json", "manifest"]
    assert lab.own() == before


def test_what_is_gone_from_the_source_stays_and_is_counted(lab):
    lab.copy()
    lab.remove(KEY, "a/001.bin")
    write(lab.storage, {"mine.txt": b"somebody's"})
    done = lab.copy()
    assert done["status"] == "current"
    sizes = len(OBJECTS[KEY]) + len(OBJECTS["a/001.bin"])
    assert done["gone"] == {"count": 2, "bytes": sizes, "keys": ["a/001.bin", KEY]}
    assert done["others"] == 1
    assert {KEY, "mine.txt"} <= lab.there().keys()
    assert "larder prune" in " ".join(copy_lines(done))
    lab.add({"later": b"1"})
    assert lab.copy()["gone"]["count"] == 2  # the record still has them


def test_a_plan_writes_nothing_and_says_what_would_be_done(lab):
    lab.copy()
    lab.add({KEY: b"another"})
    before = lab.there(), lab.own()
    plan, source, storage = calls(lab, lambda: lab.copy(plan_only=True))
    assert plan["status"] == "planned"
    assert plan["copied"] == {"count": 1, "bytes": 7}
    assert plan["replaced"] == 1
    assert counts(source) == {"list": 1}
    assert not {call.method for call in storage} & {"put", "upload", "delete", "writer"}
    assert (lab.there(), lab.own()) == before
    assert "1 object, 7 B to copy; 1 object differed" in "\n".join(copy_lines(plan))


def test_globs_select_what_is_copied_and_what_is_gone(lab):
    done = lab.copy(include=["a/*", "Z/**"], exclude=["**/01?.bin"])
    assert lab.there().keys() == {key for key in OBJECTS if key[0] in "aZ" and key[3] != "1"}
    assert done["objects"]["count"] == 20
    lab.copy()
    lab.remove("a/001.bin", KEY)
    assert lab.copy(include=["a/*"])["gone"]["keys"] == ["a/001.bin"]
    assert lab.copy(include=["b/*"], exclude=["**/007*"])["gone"]["count"] == 0
    assert lab.copy()["gone"]["count"] == 2
    plan = lab.copy(include=["a/*"], plan_only=True)
    assert plan["status"] == "current"


def test_a_copy_checked_by_its_size_is_checked_again_for_a_digest(tmp_path):
    with directories(tmp_path, {"a": b"1", "b": b"22"}) as lab:
        done = lab.copy(verify="size")
        checks = done["checks"]
        assert lab.copy(verify="size")["status"] == "current"
        again = lab.copy(verify="digest")
        weak = checks.get("size", 0)
        assert again["copied"]["count"] == weak
        assert "size" not in again["checks"]
        assert lab.copy(verify="size")["status"] == "current"


def test_a_directory_has_no_folder_markers_and_a_bucket_has(tmp_path):
    with buckets(OBJECTS) as lab:
        lab.copy()
        assert lab.there() == OBJECTS
        down = CopyLab(lab.source, str(tmp_path / "down"), {})
        down.copy()
        assert down.there().keys() == OBJECTS.keys() - {"top/"}
        assert down.copy()["status"] == "current"
        assert down.copy(plan_only=True)["status"] == "current"


def test_keys_that_the_storage_cannot_hold_are_refused_before_anything_is_copied(tmp_path):
    bad = {"a": b"1", "a/b": b"2", "c//d": b"3", "../e": b"4", f"{'x' * 300}": b"5", "ok": b"6"}
    with buckets(bad) as lab:
        down = CopyLab(lab.source, str(tmp_path / "down"), {})
        with pytest.raises(RefusedError) as caught:
            down.copy()
        assert caught.value.code == "config.bad_key"
        failed = {failure.key for failure in caught.value.report.failures}
        assert failed == {"a/b", "c//d", "../e", "x" * 300}
        assert not (tmp_path / "down").exists()
        assert down.copy(exclude=["a/*", "c/**", "../*", "xx*"])["copied"]["count"] == 2


def test_a_run_whose_clock_is_ahead_leaves_the_work_of_others_alone(tmp_path, monkeypatch):
    work, time_ns = f"{PLACE.work}due-of-another-run.parquet", time.time_ns
    with directories(tmp_path, {"a": b"1"}) as lab:
        with opened(lab.storage) as store:
            store.put(work, b"x")
        monkeypatch.setattr(time, "time_ns", lambda: time_ns() + 8 * 86_400 * 10**9)
        lab.copy()
        assert work in lab.own()
        week_ago = time.time() - 8 * 86_400
        os.utime(Path(lab.storage) / work, (week_ago, week_ago))
        lab.add({"b": b"2"})
        lab.copy()
        assert work not in lab.own()


UNLISTED = {"a/link": "object.unreadable", "b/caf\\xe9": "object.bad_key"}


def unlistable(lab: CopyLab) -> None:
    Path(lab.source, "a/link").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(lab.source) + b"/b/caf\xe9")).write_bytes(b"")


def failed_copy(lab: CopyLab, **options: Any) -> tuple[RunError, dict[str, str]]:
    with pytest.raises(RunError) as caught:
        lab.copy(**options)
    error = caught.value
    listed = Path(error.hint.partition("listed in file://")[2])
    rows = [row for batch in read_manifest(listed, FAILURES) for row in batch.to_pylist()]
    assert error.exit_status == 1
    assert len(rows) == error.report.failed == len(error.report.failures)
    assert {row["key"] for row in rows} == {each.key for each in error.report.failures}
    return error, {row["key"]: row["code"] for row in rows}


def test_what_does_not_fit_is_refused_before_anything_is_copied(tmp_path):
    objects = {f"{number}.bin": os.urandom(80_000) for number in range(4)}
    with disk_of("256k", tmp_path / "disk") as disk, directories(tmp_path, objects) as lab:
        small = CopyLab(lab.source, str(disk / "copies"), lab.options)
        for plan_only in (True, False):
            with pytest.raises(StoreError, match="320 kB would be written, but only 2"):
                small.copy(plan_only=plan_only)
        assert list(disk.iterdir()) == []
        lab.remove("0.bin", "1.bin")
        assert small.copy()["copied"]["count"] == 2


def test_paths_that_cannot_be_listed_are_failures_and_the_rest_is_copied(tmp_path):
    with directories(tmp_path, {"a/1": b"1", "b/2": b"2"}) as lab:
        unlistable(lab)
        planned = lab.copy(plan_only=True)
        assert {each["key"]: each["code"] for each in planned["failures"]} == UNLISTED
        assert (planned["failed"], planned["copied"]["count"]) == (2, 2)
        assert any("2 paths that cannot be listed" in line for line in copy_lines(planned))
        assert not (tmp_path / "storage").exists()
        error, failed = failed_copy(lab)
        assert failed == UNLISTED
        assert "2 failed in inventory" in error.message
        assert "fix or exclude these, then run again" in error.hint
        assert lab.there() == {"a/1": b"1", "b/2": b"2"}
        assert failed_copy(lab)[1] == UNLISTED, "also if there is nothing to copy"
        assert len(lab.own()) == 3
        Path(lab.source, "a/link").unlink()
        lab.add({"c": b"3"})
        with broken(lab.source, *READS, effect=unreadable(), keys={"c"}):
            error, failed = failed_copy(lab)
        assert failed.keys() == {"b/caf\\xe9", "c"}
        assert "fix or exclude these, then run again" in error.hint
        assert failed_copy(lab)[1].keys() == {"b/caf\\xe9"}
        assert lab.copy(exclude=["b/caf*"])["status"] == "copied"
        assert lab.copy(exclude=["b/caf*"])["status"] == "current"


@pytest.mark.parametrize("include", ["**", "[ab]*/**", "a/*"])
def test_what_is_in_a_directory_that_cannot_be_reached_is_not_gone(tmp_path, include):
    folder, elsewhere = tmp_path / "source/a", tmp_path / "unmounted"
    with directories(tmp_path, {"a/1": b"1", "ab/2": b"2", "b/3": b"3"}) as lab:
        folder.rename(elsewhere)
        folder.symlink_to(elsewhere)
        lab.copy()
        lab.remove("ab/2")
        elsewhere.rename(tmp_path / "away")
        if include == "a/*":
            with pytest.raises(RunError) as caught:
                lab.copy(include=[include])
            assert [failure.key for failure in caught.value.report.failures] == ["a"]
            return
        assert failed_copy(lab, include=[include])[1] == {"a": "object.unreadable"}
        gone = lab.copy(plan_only=True)["gone"]
        assert (gone["count"], gone["keys"]) == (1, ["ab/2"])
        (tmp_path / "away").rename(elsewhere)
        assert lab.copy()["copied"]["count"] == 0, "their receipts stayed"


def test_another_source_replaces_the_record_and_says_so(tmp_path):
    with directories(tmp_path, {"a.txt": b"1"}) as lab:
        lab.copy()
        write(tmp_path / "other", {"b.txt": b"2"})
        other = CopyLab(str(tmp_path / "other"), lab.storage, {})
        done = other.copy()
        assert done["warnings"][0]["code"] == "other_source"
        assert lab.source in done["warnings"][0]["message"]
        assert (done["others"], done["gone"]["count"]) == (1, 0)
        assert other.copy()["warnings"] == []
        assert lab.there() == {"a.txt": b"1", "b.txt": b"2"}


def test_a_plan_names_archived_objects(moto_server, monkeypatch):
    """They were found out one by one, when they were copied."""
    for name, value in moto_server.environment.items():
        monkeypatch.setenv(name, value)
    moto_server.create_bucket("copying")
    lab = CopyLab(*(f"s3://copying/{uuid.uuid4().hex}/{end}" for end in ("from", "to")), {})
    lab.add({"a": b"1", "b": b"2", "c": b"3"})
    lab.copy()
    assert lab.copy(plan_only=True)["warnings"] == []
    client = boto3.client("s3", endpoint_url=moto_server.endpoint)
    prefix = lab.source.removeprefix("s3://copying/")
    for key, tier in (("a", "GLACIER"), ("d", "DEEP_ARCHIVE"), ("e", "STANDARD_IA")):
        body = b"1" if key == "a" else b"new"  # of that, there is a copy
        client.put_object(Bucket="copying", Key=f"{prefix}/{key}", Body=body, StorageClass=tier)
    client.close()
    (warning,) = lab.copy(plan_only=True)["warnings"]
    assert warning["code"] == "archived"
    assert warning["message"].endswith(": d")


@pytest.mark.parametrize("how", ["altered", "cut", "another"])
def test_a_damaged_record_is_an_error_that_says_what_to_do(lab, how):
    lab.copy()
    with opened(lab.storage) as store:
        data = bytes(store.get(PLACE.document))
        plain = json.loads(data)
        others: dict[str, Any] = {
            "altered": data.replace(b"larder-copy-2", b"larder-copy-9"),
            "cut": data[:-10],
            "another": json.dumps({**plain, "bytes": "x"}).encode(),
        }
        store.put(PLACE.document, others[how])
        with pytest.raises(DamageError) as caught:
            lab.copy()
        assert caught.value.hint.startswith("delete it")
        store.delete(PLACE.document)
        assert lab.copy()["status"] == "copied"
        assert lab.copy()["status"] == "current"
        assert read_record(store, PLACE) is not None


def test_objects_that_fail_are_listed_and_tried_again(lab):
    bad = {"a/003.bin", "b/011.bin"}

    with (
        broken(lab.source, *READS, effect=unavailable(), keys=bad),
        pytest.raises(RunError) as caught,
    ):
        lab.copy()
    error = caught.value
    assert {failure.key for failure in error.report.failures} == bad
    assert {failure.code for failure in error.report.failures} == {"store.unavailable"}
    assert "run again to try these" in error.hint
    (listed,) = [key for key in lab.own() if "/failures-" in key]
    assert error.hint.endswith(listed)
    assert lab.there().keys() == contents(lab.source).keys() - bad
    lab.remove("b/011.bin")
    done = lab.copy()
    assert (done["status"], done["copied"]["count"]) == ("copied", 1)
    assert lab.there() == contents(lab.source)
    assert not [key for key in lab.own() if "/failures-" in key or "/work/" in key]


def test_too_many_failures_stop_it_early_and_are_recorded(tmp_path):
    many = {f"{number:04}": b"x" for number in range(600)}
    with directories(tmp_path, many) as lab:
        settings = ["copy.max_failure_rate=0.1", "copy.concurrency=4", "runner.batch_bytes=200"]
        with (
            broken(lab.source, "get", "open", effect=unreadable()),
            pytest.raises(RunError) as caught,
        ):
            lab.copy(settings=[*settings, "runner.workers=1"])
        error = caught.value
        assert "stopped early in mirror" in error.message
        assert "copy.max_failure_rate (0.1)" in error.message
        assert MIN_FAILURES <= error.report.failed < 200  # the batches after the first are left
        assert lab.copy()["copied"]["count"] == 600
        assert lab.there() == many
        assert lab.copy()["status"] == "current"


@pytest.mark.parametrize("side", ["source", "storage"])
def test_refused_access_ends_it_at_once(lab, side):
    url = getattr(lab, side)
    methods = {"source": READS, "storage": ("put", "writer", "upload", "copy_from")}
    with broken(url, *methods[side], effect=denied()), pytest.raises(StoreError) as caught:
        lab.copy()
    assert caught.value.code == "store.denied"
    lab.copy()
    assert len([key for key in lab.own() if not key.startswith(PLACE.work)]) == 2
    assert lab.there() == contents(lab.source)


def test_failures_of_a_dataset_are_listed_in_a_file_too(tmp_path):
    write(tmp_path / "source", {f"a/{number}.txt": b"x" for number in range(5)})
    asked = run_settings(tmp_path / "source", tmp_path / "storage", tmp_path / "out", mirror=True)
    bad = broken(str(tmp_path / "source"), "get", "open", effect=unreadable(), keys=["a/3.txt"])
    with bad, pytest.raises(RunError) as caught:
        prepare(asked)
    (listed,) = (tmp_path / "storage").glob("larder/d/work/mirror/failures-*.parquet")
    assert caught.value.hint.endswith(f"they are listed in file://{listed}")
    (row,) = [row for batch in read_manifest(listed, FAILURES) for row in batch.to_pylist()]
    assert row["key"] == "a/3.txt"
    assert row["code"] == "object.unreadable"
    assert row["attempts"] == 1
    assert prepare(asked)["status"] == "built"


FEW = {f"a/{number}.bin": bytes([number]) for number in range(3)}


@pytest.mark.parametrize("kind", ["buckets", "directories"])
@pytest.mark.parametrize("role", ["manifest", "failures"])
def test_a_record_that_names_others_files_is_refused(kind, role, tmp_path):
    with lab_of(kind, tmp_path, FEW) as lab:
        lab.copy()
        with opened(lab.storage) as store:
            record = read_record(store, PLACE)
            other = replace(record.manifest, path="a/1.bin")
            store.put(PLACE.document, seal(replace(record, **{role: other})))
        lab.add({"b.bin": b"new"})
        with larder_error("damage.manifest"):
            lab.copy()
        assert lab.there() == FEW


def test_a_record_of_a_mirror_deletes_no_version(tmp_path):
    lab = directory_lab(tmp_path, images("ab", 1), mirror=True)
    version = lab.prepare()["version"]
    document = lab.folder / "work/mirror/copy.json"
    with lab.opened_root() as root:
        place = PLACE._replace(objects="mirror/", files="work/mirror/")
        record = read_record(root, place)
        file = StoredFile(f"versions/{version}/version.json", 1, "0" * 64, "failures")
        document.write_bytes(seal(replace(record, failures=file)))
    lab.add({"a/9.png": png(9)})
    with larder_error("damage.manifest"):
        lab.prepare()
    assert lab.check().keys() == {version}


@pytest.mark.parametrize("name", [".DS_Store", ".nfs000000000001", "a-b-c-d.parquet"])
def test_other_files_among_the_receipts_are_ignored(name, tmp_path):
    with directories(tmp_path, FEW) as lab:
        lab.copy()
        with opened(lab.storage) as store:
            record = read_record(store, PLACE)
        stray = Path(lab.storage, PLACE._replace(origin=record.source).receipts, name)
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.touch()
        lab.add({"b.bin": b"new"})
        assert lab.copy()["copied"]["count"] == 1
        assert stray.exists()
