"""Prune: what is deleted, now or by a later run, what is not, and when it refuses."""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from copy_lab import PLACE, CopyLab, broken, buckets, calls, contents, directories, lab_of
from costs_lab import blob
from pipeline_lab import DOCUMENT, opened, write
from required import at_push

from larder.copy.copy_record import read_record
from larder.copy.pruning import PruneSettings, prune, prune_lines
from larder.errors import ConfigError, LarderError, NotFoundError, PreconditionError, StoreError
from larder.jobs.manifests import read_ref
from larder.jobs.results import RunError
from larder.jobs.step_runner import InlineRunner
from larder.manifest.schemas import OBJECTS
from larder.progress import StageTimes
from tests.support.errors import larder_error
from tests.support.runs import between, forget_manifests
from tests.support.stores import (
    Fail,
    LosingStore,
    Meanwhile,
    MeanwhileStore,
    denied,
    unavailable,
    unreadable,
)

SOURCE = {
    f"{name}/{number:02}.bin": blob(f"{name}{number}", 10) for name in "ab" for number in range(20)
}
GONE = ["a/03.bin", "b/07.bin", "b/19.bin"]


@pytest.fixture(params=["directories", *at_push("buckets")])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CopyLab]:
    with lab_of(request.param, tmp_path, SOURCE) as made:
        yield made


def pruned(
    lab: CopyLab, max_delete: int | None = None, *, plan_only: bool = False, **options: object
) -> DOCUMENT:
    forget_manifests()
    settings = PruneSettings(lab.settings(**options), max_delete)
    return prune(settings, InlineRunner(1, StageTimes()), plan_only=plan_only)


def refused(lab: CopyLab, max_delete: int | None = None, **options: object) -> ConfigError:
    before = lab.there(), lab.own()
    with pytest.raises(ConfigError) as caught:
        pruned(lab, max_delete, **options)
    assert (lab.there(), lab.own()) == before
    return caught.value


def test_a_listing_that_leaves_something_out_is_not_pruned_by(tmp_path):
    with directories(tmp_path, SOURCE) as lab:
        lab.copy()
        lab.remove(*GONE)
        (tmp_path / "source/a/link").symlink_to("nowhere")
        before = lab.there(), lab.own()
        with pytest.raises(RunError) as caught:
            pruned(lab)
        assert [failure.key for failure in caught.value.report.failures] == ["a/link"]
        assert (lab.there(), lab.own()) == before


def test_what_is_gone_from_the_source_is_deleted_and_listed(lab):
    lab.copy()
    lab.remove(*GONE)
    write(lab.storage, {"mine.txt": b"somebody's"})
    before = lab.there(), lab.own()
    plan = pruned(lab, plan_only=True)
    assert (plan["status"], plan["gone"]) == ("planned", {"count": 3, "bytes": 30, "keys": GONE})
    assert (lab.there(), lab.own()) == before
    done = pruned(lab)
    assert (done["status"], done["deleted"]) == ("pruned", {"count": 3, "bytes": 30})
    assert done["gone"]["keys"] == GONE
    assert lab.there() == contents(lab.source) | {"mine.txt": b"somebody's"}
    (listed,) = [key for key in lab.own() if "/pruned-" in key]
    assert done["list"].endswith(listed)
    assert all(key in "\n".join(prune_lines(done)) for key in GONE)
    with opened(lab.storage) as root:
        record = read_record(root, PLACE)
        assert record is not None
        rows = [
            key
            for batch in read_ref(root, record.manifest, OBJECTS)
            for key in batch.column("key").to_pylist()
        ]
    assert rows == sorted(contents(lab.source))
    assert lab.copy()["status"] == "current"
    assert pruned(lab)["status"] == "current"


def test_without_anything_gone_nothing_is_written(lab):
    lab.copy()
    done, _, storage = calls(lab, lambda: pruned(lab))
    assert (done["status"], done["deleted"]) == ("current", {"count": 0, "bytes": 0})
    assert not {call.method for call in storage} & {"put", "upload", "delete", "writer"}


def test_copies_from_another_source_are_not_called_those_of_this_one(tmp_path):
    with directories(tmp_path, SOURCE) as lab:
        lab.copy()
        write(tmp_path / "second", {"c/1.bin": b"x"})
        second = CopyLab(str(tmp_path / "second"), lab.storage, lab.options)
        second.copy()
        document = pruned(second)
        assert (document["copies"]["count"], document["others"]) == (1, 40)
        (line,) = prune_lines(document)
        assert line.endswith("(1 object); 40 objects from elsewhere left alone")
        assert len(second.there()) == 41


def test_only_what_a_copy_wrote_is_deleted(lab):
    """An object that was altered at the storage is somebody's else by now."""
    lab.copy()
    lab.remove(*GONE)
    write(lab.storage, {GONE[0]: b"mine now", "x/more": b"mine, too"})
    assert pruned(lab)["deleted"]["count"] == 2
    assert {GONE[0], "x/more"} <= lab.there().keys()


@pytest.mark.parametrize("method", ["head", "delete"])
def test_an_object_that_changes_after_the_listing_stays(lab, method):
    lab.copy()
    lab.remove(*GONE)
    meanwhile = Meanwhile()
    meanwhile.before(method, GONE[1], lambda: write(lab.storage, {GONE[1]: b"new"}))
    with between(lambda store: MeanwhileStore(store, meanwhile)):
        done = pruned(lab)
    assert (done["deleted"]["count"], done["kept"]) == (2, 1)
    assert lab.there()[GONE[1]] == b"new"


def test_it_is_capped(lab):
    lab.copy()
    lab.remove(*list(SOURCE)[:5])
    error = refused(lab)
    assert error.code == "config.prune"
    assert "--max-delete 5" in error.hint
    assert {refused(lab, limit).code for limit in (0, 4)} == {"config.prune"}
    assert pruned(lab, 5)["deleted"]["count"] == 5


def test_globs_limit_it(lab):
    lab.copy()
    lab.remove(*GONE)
    assert pruned(lab, include=["b/*"], exclude=["**/19.*"])["gone"]["keys"] == ["b/07.bin"]
    assert pruned(lab)["gone"]["keys"] == ["a/03.bin", "b/19.bin"]


def test_an_empty_source_another_source_and_no_record_are_refused(lab, tmp_path):
    write(lab.storage, {"mine": b"1"})
    assert "no record" in refused(lab).message
    lab.copy()
    write(tmp_path / "other", {"a": b"1"})
    other = CopyLab(str(tmp_path / "other"), lab.storage, {})
    error = refused(other)
    assert error.code == "config.prune"
    assert "another source" in error.message
    lab.remove(*SOURCE)
    with larder_error("config.empty_source"):
        pruned(lab, 1000)
    assert len(lab.there()) == len(SOURCE) + 1


def test_a_report_instead_of_a_listing_is_refused(tmp_path):
    with directories(tmp_path, SOURCE) as lab:
        lab.copy()
        (tmp_path / "report.csv").write_text("key,size\na/00.bin,10\n")
        report = f"source.inventory.url={tmp_path / 'report.csv'}"
        assert "report" in refused(lab, 1000, settings=[report]).message


@pytest.mark.parametrize("side", ["source", "storage"])
def test_a_listing_that_fails_in_the_middle_deletes_nothing(side):
    many = {f"{number:05}": b"x" for number in range(2_500)}
    with buckets(many) as lab:
        lab.copy()
        lab.remove("00001")
        broken_list = broken(getattr(lab, side), "list", effect=unavailable(), nth=3)
        with broken_list, larder_error("store.unavailable"):
            pruned(lab)
        assert len(lab.there()) == 2_500


def test_what_cannot_be_deleted_is_reported_and_tried_again(lab):
    lab.copy()
    lab.remove(*GONE)
    with (
        broken(lab.storage, "delete", effect=unreadable(), keys=GONE[:1]),
        pytest.raises(RunError) as caught,
    ):
        pruned(lab)
    assert [failure.key for failure in caught.value.report.failures] == [GONE[0]]
    assert lab.there().keys() == contents(lab.source).keys() | {GONE[0]}
    assert pruned(lab)["gone"]["keys"] == [GONE[0]]


def test_a_storage_that_refuses_ends_it(lab):
    lab.copy()
    lab.remove(*GONE)
    with broken(lab.storage, "delete", effect=denied()), pytest.raises(StoreError):
        pruned(lab)
    assert len(lab.there()) == len(SOURCE)
    assert pruned(lab)["deleted"]["count"] == 3


@pytest.mark.parametrize("days", [6, 8])
def test_a_replaced_manifest_goes_a_week_after_its_record(tmp_path, days):
    with directories(tmp_path, {"a": b"a"}) as lab:
        lab.copy()
        (first,) = (tmp_path / "storage/_larder/copy").glob("manifest-*")
        key = str(first.relative_to(tmp_path / "storage"))
        lab.add({"b": b"b"})
        with broken(lab.storage, "delete", effect=denied(), keys=[key]), pytest.raises(StoreError):
            lab.copy()
        past = time.time() - days * 86_400
        os.utime(first, (past, past))
        lab.add({"c": b"c"})
        lab.copy()
        assert first.exists() == (days == 6)
        assert sorted(lab.there()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "error",
    [NotFoundError("object.missing", "not found"), PreconditionError("object.changed", "changed")],
)
def test_a_copy_that_a_store_denies_to_have_is_pruned_once_it_is_listed(error):
    with buckets({"a": b"a", "b": b"b"}) as lab:
        lab.copy()
        lab.remove("b")
        with broken(lab.storage, "head", effect=Fail(error), keys=["b"]):
            pruned(lab, 1)
        assert sorted(lab.there()) == ["a", "b"]
        pruned(lab, 1)
        assert sorted(lab.there()) == ["a"]


@pytest.mark.parametrize("kept_bytes", [None, 10])
def test_nothing_is_pruned_if_its_list_is_lost(kept_bytes):
    with buckets({"a": b"a", "b": b"b"}) as lab:
        lab.copy()
        lab.remove("b")
        losing = partial(LosingStore, is_lost=lambda key: "/pruned-" in key, kept_bytes=kept_bytes)
        with between(losing), pytest.raises(LarderError):
            pruned(lab, 1)
        assert sorted(lab.there()) == ["a", "b"]
        pruned(lab, 1)
        assert sorted(lab.there()) == ["a"]
