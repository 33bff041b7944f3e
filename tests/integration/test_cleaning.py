"""What a clean deletes, what it leaves, and when it refuses."""

import os
import time
import uuid
from dataclasses import replace

import pytest
from catalog_lab import cleaned, drop_all, grown, leased, place_of, tagged
from pipeline_lab import Lab, directory_lab, images, memory_lab, png, reach, write

from larder.catalog.clean import clean_lines
from larder.catalog.leasing import lease_lines
from larder.catalog.usage import usage
from larder.errors import DamageError, StoreError
from larder.manifest.sealed import seal, unseal
from larder.pipeline.emit import emit
from larder.store.base import Store
from larder.versions import layout
from larder.versions.leases import read_tombstones
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import FaultyStore, KeyStop, UnconditionalStore, denied, keys_of

SOURCE = images("ab", 2)


@pytest.fixture
def lab(tmp_path):
    return directory_lab(tmp_path, SOURCE)


def files(lab) -> set[str]:
    """What is below the root."""
    paths = (path for path in lab.folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(lab.folder).as_posix() for path in paths}


def test_it_takes_two_cleans(lab):
    first, second, third = grown(lab)
    before = files(lab)
    plan = cleaned(lab, grace="24h", plan_only=True)
    assert (plan["status"], plan["kept"]) == ("planned", {third: "tag latest"})
    assert {f"versions/{first}", f"versions/{second}"} <= set(plan["due"]["units"])
    assert files(lab) == before
    announced = cleaned(lab, grace="24h")
    assert (announced["status"], announced["deleted"]["count"]) == ("announced", 0)
    assert set(announced["announced"]["units"]) == set(plan["due"]["units"])
    assert announced["announced"]["hours"] == 24
    assert cleaned(lab, grace="24h")["status"] == "current"
    (tombstone,) = files(lab) - before
    longer_ago = os.stat(lab.folder / tombstone).st_mtime - 25 * 3600  # clocks are set back, too
    os.utime(lab.folder / tombstone, (longer_ago, longer_ago))
    done = cleaned(lab, grace="24h")
    assert done["status"] == "cleaned"
    assert done["deleted"] == {name: plan["due"][name] for name in ("count", "bytes")}
    assert lab.check().keys() == {third}
    left = files(lab)
    assert {key.split("/")[1] for key in left if key.startswith("versions/")} == {third}
    assert not any(key.startswith("tombstones/") for key in left)
    assert lab.prepare()["status"] == "reused"


def test_usage_says_what_a_clean_frees(lab):
    grown(lab, 3)

    def freed() -> int:
        return int(usage(place_of(lab))["clean_bytes"])

    planned = cleaned(lab, grace="24h", plan_only=True)
    assert freed() == planned["due"]["bytes"] > 0
    cleaned(lab, grace="24h")
    assert freed() == planned["due"]["bytes"], "what is announced is not yet free"
    cleaned(lab)
    assert freed() == 0


def test_an_emitted_config_keeps_its_version(lab):
    first, _ = grown(lab, 2)
    emit(lab.settings(), first)
    assert list(cleaned(lab)["kept"].values())[1] == f"lease config-c-{first}"
    (shown,) = [line for line in lease_lines(leased(lab)) if first in line]
    assert "the config of cluster c" in shown


@pytest.mark.parametrize(
    ("flags", "where"),
    [((0, "0h"), "--keep"), ((1, "a day"), "--grace"), ((1, "-1h"), "--grace")],
)
def test_a_policy_that_is_none_is_refused(lab, flags, where):
    with larder_error("config.invalid_value", where):
        cleaned(lab, *flags)


def test_the_only_version_stays_whatever_names_it(lab):
    (only,) = grown(lab, 1)
    (lab.folder / layout.tag_key("latest")).unlink()
    assert cleaned(lab)["kept"] == {only: "newest"}
    assert lab.check().keys() == {only}


def test_there_is_no_such_dataset(lab):
    with larder_error("store.missing"):
        cleaned(lab)
    lab.folder.parent.mkdir(parents=True)
    with larder_error("version.missing"):
        cleaned(lab)


@pytest.mark.push
def test_files_that_are_not_larders_stay_and_are_listed(lab):
    first, _ = grown(lab, 2)
    (segment,) = {path.parent.name for path in lab.files("segment.json")} - {
        use.id for use in lab.newest().version.segments[1:]
    }
    theirs = {
        f"versions/{first}/notes.txt",
        f"segments/{segment}/shards/train/README",
        "elsewhere/file",
        "tags.txt",
        f"versions/{'0' * 31}/version.json",
    }
    write(lab.folder, dict.fromkeys(theirs, b"mine"))
    write(str(lab.source), {"a/00.png": png(77)})
    lab.compact()
    drop_all(lab)
    document = cleaned(lab)
    assert document["status"] == "cleaned"
    assert set(document["foreign"]["keys"]) == theirs
    assert document["foreign"]["count"] == len(theirs)
    assert "README" in "\n".join(clean_lines(document))
    assert theirs <= files(lab)
    left = {key for key in files(lab) if segment in key or first in key}
    assert left == {key for key in theirs if segment in key or first in key}


@pytest.mark.push
def test_work_of_killed_runs_goes_with_time_and_receipts_with_their_segment(lab):
    grown(lab, 1)
    receipts = {key for key in files(lab) if "/work/" in key}
    lab.add({"a/77.png": png(7)})
    assert lab.stopped(KeyStop("segment.json")) is None
    work = {key for key in files(lab) if "/work/" in key} - receipts
    assert work
    assert cleaned(lab, 1, "0h")["status"] == "current", "the run has a lease"
    drop_all(lab)
    assert cleaned(lab, 1, "24h")["status"] == "current"
    cleaned(lab, 1, "0h")
    assert {key for key in files(lab) if "/work/" in key} == receipts
    assert lab.prepare()["status"] == "built"


@pytest.mark.push
def test_a_cache_that_no_version_names_goes_alone(lab):
    grown(lab, 1)
    lab.prepare(cache={"records": "encoded"})
    drop_all(lab)
    before = lab.files("*.mdb")
    cleaned(lab)
    (published,) = lab.check().values()
    assert len(lab.files("*.mdb")) == len(before) // 2
    assert lab.prepare()["status"] == "built"
    assert published.version.cache.kind == "encoded"


def test_nothing_is_deleted_while_nobody_knows_what_is_needed(lab):
    first, second = grown(lab, 2)
    emit(lab.settings(), first)
    version = lab.folder / layout.version_key(first)
    tag, lease = lab.folder / layout.tag_key("latest"), next((lab.folder / "leases").glob("*.json"))
    plain = unseal(version.read_bytes(), "")
    newer, older = (seal({**plain, "format": f"larder-version-{number}"}) for number in (9, 0))
    for path, content, hint in (
        *((path, path.read_bytes().replace(b'"', b"'", 1), "") for path in (tag, lease, version)),
        (version, None, ""),
        (version, newer, "newer"),
        (version, older, "release that wrote it"),
    ):
        data = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        before = files(lab)
        with pytest.raises(DamageError) as caught:
            cleaned(lab)
        for told in ("newer", "release that wrote it"):
            assert (told in caught.value.hint) == (told == hint)
        assert files(lab) == before
        path.write_bytes(data)
    assert lab.check().keys() == {first, second}


def test_a_listing_that_fails_deletes_nothing(tmp_path):
    lab = memory_lab(tmp_path, SOURCE, labels={"from": "folder"})
    with between():
        versions = grown(lab)
    for nth in (1, 2, 3, 4):
        faulty: list[FaultyStore] = []

        def wrap(store: Store, faulty: list[FaultyStore] = faulty, nth: int = nth) -> Store:
            faulty.append(FaultyStore(store))
            faulty[-1].add("list", denied(), nth=nth)
            return faulty[-1]

        with between(wrap), pytest.raises(StoreError):
            cleaned(lab)
        assert lab.check().keys() == set(versions)


def test_who_may_not_delete_is_told_before_anything_is_announced(tmp_path):
    lab = memory_lab(tmp_path, SOURCE, labels={"from": "folder"})
    with between():
        versions = grown(lab)
    stores: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        stores.append(FaultyStore(store))
        stores[-1].add("delete", denied(), times=None)
        return stores[-1]

    with between(wrap), pytest.raises(StoreError) as caught:
        cleaned(lab)
    assert caught.value.code == "store.denied"
    with lab.opened_root() as root:
        assert list(read_tombstones(root)) == []
    assert lab.check().keys() == set(versions)


def test_no_clock_of_this_machine_decides(lab, monkeypatch):
    """Files get the time of their file system, which is ahead of this machine by days."""
    grown(lab, 2)
    cleaned(lab, grace="24h")
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert cleaned(lab, grace="24h")["status"] == "current"
    assert cleaned(lab, grace="0h")["status"] == "cleaned"


@pytest.mark.push
def test_mirrored_objects_that_no_version_was_made_from_go_if_asked(tmp_path):
    lab = directory_lab(tmp_path, SOURCE, mirror=True)
    grown(lab, 1)
    lab.remove("a/new0.png")
    lab.prepare()
    drop_all(lab)
    mirrored = lab.folder / "mirror/a/new0.png"
    cleaned(lab, mirror=False)
    assert mirrored.exists()
    assert cleaned(lab, grace="24h", mirror=True)["status"] == "current"
    assert lab.stopped(KeyStop("version.json"), cache=None) is None
    assert cleaned(lab, mirror=True)["status"] == "current", "a run may be about to read it"
    drop_all(lab)
    only = cleaned(lab, mirror=True)
    assert (only["copies"], only["status"]) == ({"count": 0, "bytes": 0, "lasting": 1}, "cleaned")
    assert "mirror   1 object no longer read" in "\n".join(clean_lines(only))
    assert mirrored.exists(), "the only copy"
    write(str(lab.source), {"a/new0.png": png(50)})
    assert cleaned(lab, mirror=True, described=False)["copies"]["lasting"] == 1
    assert mirrored.exists(), "nobody knows whether it is in the source"
    assert cleaned(lab, mirror=True, plan_only=True)["copies"]["count"] == 1
    cleaned(lab, mirror=True)
    assert not mirrored.exists()
    assert len(list((lab.folder / "mirror").rglob("*.png"))) == len(SOURCE) - 2
    assert lab.prepare()["copied"]["count"] == 1


def test_a_store_that_refuses_conditions_is_cleaned(tmp_path):
    lab = memory_lab(tmp_path, SOURCE, labels={"from": "folder"})
    with between(lambda store: UnconditionalStore(store, refuses=True)):
        first, second = grown(lab, 2)
        tagged(lab, "latest", first)
        assert cleaned(lab)["kept"] == {second: "newest", first: "tag latest"}
        tagged(lab, "latest", second)
        assert cleaned(lab)["status"] == "cleaned"
    assert lab.check().keys() == {second}


@pytest.mark.push
def test_a_bucket_is_cleaned(server, tmp_path):
    """Whose dates are whole seconds."""
    server.create_bucket("cleaned")
    storage = {"url": f"s3://cleaned/{uuid.uuid4().hex}", **reach(server)}
    source = directory_lab(tmp_path, SOURCE)
    lab = Lab(source.source, storage, tmp_path / "out", {**source.fields, "mirror": True})
    second = grown(lab, 2)[-1]
    gone = ["a/00.png", "b/01.png"]
    lab.remove(*gone)
    third = lab.compact()["version"]
    leased(lab, second, "bob", 1)
    assert cleaned(lab, grace="24h")["status"] == "announced"
    tagged(lab, "v1", second)
    drop_all(lab)
    cleaned(lab, grace="0h", mirror=True)
    assert lab.check().keys() == {second, third}
    tagged(lab, "v1", delete=True)
    assert cleaned(lab, grace="0h", mirror=True)["copies"]["lasting"] == len(gone)
    excluding = replace(lab, source={"url": lab.source, "exclude": gone})
    cleaned(excluding, grace="0h", mirror=True)
    (published,) = lab.check().values()
    with lab.opened_root() as root:
        keys = keys_of(root)
    (use,) = published.version.segments
    units = (f"segments/{use.id}/", f"versions/{third}/", "tags/", "work/", "mirror/")
    assert [key for key in keys if not key.startswith(units)] == []
    assert sum(key.startswith("mirror/") for key in keys) == len(SOURCE)
    assert lab.prepare()["status"] == "reused"
