"""What a clean deletes, what it leaves, and when it refuses.

It deletes what an earlier clean announced only where its own policy lets it go.
"""

import os
import shutil
import time
import uuid
from dataclasses import replace

import pytest
from catalog_lab import cleaned, drop_all, grown, leased, place_of, tagged
from pipeline_lab import Lab, directory_lab, images, memory_lab, png, reach, write

from larder.catalog.cleaning import clean_lines
from larder.catalog.leasing import lease_lines
from larder.catalog.usage import usage
from larder.copy import uploads
from larder.disk import DRAFT_PREFIX
from larder.errors import DamageError
from larder.manifest.sealed import seal, unseal
from larder.pipeline.configs import emit
from larder.segments.mirror import PLACE as MIRROR
from larder.store import open_store
from larder.store.base import BucketPrefix, Features, Store
from larder.store.delegate import DelegatingStore
from larder.versions import layout
from larder.versions.leases import Claim, Tombstone, read_tombstones
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import (
    FaultyStore,
    KeyStop,
    Recorder,
    UnconditionalStore,
    denied,
    keys_of,
    unavailable,
)

SOURCE = images("ab", 2)


OLDER_SECONDS = 25 * 3600
"""Longer than the grace time also where the machine's clock is set back meanwhile."""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A dataset with four versions, and these in their order; each test has a copy."""
    lab = directory_lab(tmp_path_factory.mktemp("published"), SOURCE, cache=None)
    return lab, grown(lab, 4)


@pytest.fixture
def lab(published, tmp_path):
    lab, _ = published
    copies = {name: tmp_path / name for name in ("source", "local")}
    shutil.copytree(lab.source, copies["source"])
    shutil.copytree(lab.storage, copies["local"])
    return replace(lab, source=str(copies["source"]), storage=copies["local"])


@pytest.fixture
def versions(published):
    return published[1]


@pytest.fixture
def new(tmp_path):
    return directory_lab(tmp_path, SOURCE)


def files(lab) -> set[str]:
    paths = (path for path in lab.folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(lab.folder).as_posix() for path in paths}


def test_it_takes_two_cleans(lab, versions):
    *old, last = versions
    before = files(lab)
    plan = cleaned(lab, grace="24h", plan_only=True)
    assert (plan["status"], plan["kept"]) == ("planned", {last: "tag latest"})
    assert {f"versions/{version}" for version in old} <= set(plan["due"]["units"])
    assert files(lab) == before
    announced = cleaned(lab, grace="24h")
    assert (announced["status"], announced["deleted"]["count"]) == ("announced", 0)
    assert set(announced["announced"]["units"]) == set(plan["due"]["units"])
    assert announced["announced"]["hours"] == 24
    assert cleaned(lab, grace="24h")["status"] == "current"
    make_older(lab, "tombstones")
    done = cleaned(lab, grace="24h")
    assert done["status"] == "cleaned"
    assert done["deleted"] == {name: plan["due"][name] for name in ("count", "bytes")}
    assert lab.check().keys() == {last}
    left = files(lab)
    assert {key.split("/")[1] for key in left if key.startswith("versions/")} == {last}
    assert not any(key.startswith("tombstones/") for key in left)
    assert lab.prepare()["status"] == "reused"


def test_usage_says_what_a_clean_frees(lab):
    def freed() -> int:
        return int(usage(place_of(lab))["clean_bytes"])

    planned = cleaned(lab, grace="24h", plan_only=True)
    assert freed() == planned["due"]["bytes"] > 0
    cleaned(lab, grace="24h")
    assert freed() == planned["due"]["bytes"], "what is announced is not yet free"
    cleaned(lab)
    assert freed() == 0


def test_an_emitted_config_keeps_its_version(lab, versions):
    first = versions[0]
    emit(lab.settings(), first)
    leased(lab, first, holder="a reader", days=1)  # the lease that ends last is named
    assert list(cleaned(lab)["kept"].values())[1] == f"lease config-c-{first}; 30 days left"
    shown, _ = [line for line in lease_lines(leased(lab)) if first in line]
    assert "the config of cluster c" in shown


@pytest.mark.parametrize(
    ("flags", "where"), [((0, "0h"), "--keep"), ((1, "a day"), "--grace"), ((1, "-1h"), "--grace")]
)
def test_a_policy_that_is_none_is_refused(lab, flags, where):
    with larder_error("config.invalid_value", where):
        cleaned(lab, *flags)


def test_the_newest_version_stays_if_nothing_names_it(lab, versions):
    (lab.folder / layout.tag_key("latest")).unlink()
    assert cleaned(lab)["kept"] == {versions[-1]: "newest"}
    assert lab.check().keys() == {versions[-1]}


def test_there_is_no_such_dataset(new):
    with larder_error("store.missing"):
        cleaned(new)
    new.folder.parent.mkdir(parents=True)
    with larder_error("version.missing"):
        cleaned(new)


@pytest.mark.push
def test_files_that_are_not_larders_stay_and_are_listed(lab, versions):
    first = versions[0]
    segment = lab.check()[first].version.segments[0].id
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
def test_work_of_killed_runs_goes_with_time_and_receipts_with_their_segment(new):
    lab = new
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
def test_a_cache_that_no_version_names_goes_alone(new):
    lab = new
    grown(lab, 1)
    lab.prepare(cache={"records": "encoded"})
    drop_all(lab)
    before = lab.files("*.mdb")
    cleaned(lab)
    (published,) = lab.check().values()
    assert len(lab.files("*.mdb")) == len(before) // 2
    assert lab.prepare()["status"] == "built"
    assert published.version.cache.kind == "encoded"


def test_nothing_is_deleted_while_nobody_knows_what_is_needed(lab, versions):
    first = versions[0]
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
    assert lab.check().keys() == set(versions)


@pytest.mark.parametrize(
    ("method", "calls"),
    [*(("list", {"nth": nth}) for nth in (1, 2, 3, 4)), ("delete", {"times": None})],
)
def test_a_refusal_is_told_before_anything_is_announced(lab, versions, method, calls):
    def refusing(store: Store) -> Store:
        faulty = FaultyStore(store)
        faulty.add(method, denied(), **calls)
        return faulty

    with between(refusing), larder_error("store.denied"):
        cleaned(lab)
    with lab.opened_root() as root:
        assert list(read_tombstones(root)) == []
    assert lab.check().keys() == set(versions)


def test_no_clock_of_this_machine_decides(lab, monkeypatch):
    """Files get the time of their file system, which is ahead of this machine by days."""
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


def make_older(lab, folder: str) -> None:
    for path in (lab.folder / folder).rglob("[!.]*"):
        then = path.stat().st_mtime - OLDER_SECONDS
        os.utime(path, (then, then))


@pytest.mark.parametrize("policy", [{"keep": 3}, {"keep": 1, "older": "365d"}])
def test_what_this_clean_keeps_is_no_longer_announced(lab, versions, policy):
    cleaned(lab, 1, "24h")
    make_older(lab, "tombstones")
    kept = versions[-3:] if policy["keep"] == 3 else versions
    plan = cleaned(lab, grace="24h", plan_only=True, **policy)
    assert plan["kept"].keys() == set(kept)
    assert not {f"versions/{version}" for version in kept} & set(plan["ripe"]["units"])
    done = cleaned(lab, grace="24h", **policy)
    assert done["status"] == "cleaned"
    assert done["deleted"] == {name: plan["ripe"][name] for name in ("count", "bytes")}
    assert lab.check().keys() == set(kept)
    assert not list((lab.folder / "tombstones").glob("[!.]*"))
    assert cleaned(lab, grace="24h", **policy)["status"] == "current"


def test_of_versions_of_one_second_the_tagged_one_is_the_newest(lab, versions):
    for version in versions:
        os.utime(lab.folder / f"versions/{version}/version.json", (10**9, 10**9))
    assert cleaned(lab, 1)["kept"] == {versions[-1]: "tag latest"}
    assert lab.check().keys() == {versions[-1]}


def test_no_version_is_young_if_none_is_to_be_kept_for_its_age(lab, versions):
    """Also if the store lists it with a fraction of the second that is its time."""
    later = time.time() + 1
    for version in versions:
        os.utime(lab.folder / f"versions/{version}/version.json", (later, later))
    assert cleaned(lab, 1)["kept"] == {versions[-1]: "tag latest"}


def test_a_clean_that_waits_says_what_its_own_policy_lets_go(lab, versions):
    cleaned(lab, 1, "24h")
    waiting = cleaned(lab, 3, "24h", plan_only=True)["announced"]["units"]
    assert [unit for unit in waiting if unit.startswith("versions/")] == [f"versions/{versions[0]}"]


def test_work_that_a_run_went_on_with_since_it_was_announced_stays(lab):
    lab.add({"a/more.png": png(70)})
    assert lab.stopped(KeyStop("version.json")) is None
    drop_all(lab)
    make_older(lab, "segments")
    units = cleaned(lab, 4, "24h")["announced"]["units"]
    (segment,) = (unit for unit in units if unit.count("/") == 1)
    make_older(lab, "tombstones")
    os.utime(next((lab.folder / segment).rglob("[!.]*.tar")))
    plan = cleaned(lab, 4, "24h", plan_only=True)
    assert (plan["ripe"]["units"], plan["announced"]["units"]) == ([], [])
    before = set((lab.folder / segment).rglob("*"))
    assert cleaned(lab, 4, "24h")["deleted"]["count"] == 0
    assert set((lab.folder / segment).rglob("*")) == before
    make_older(lab, segment)
    assert cleaned(lab, 4, "24h")["announced"]["units"] == units


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_segment_goes_with_the_version_that_another_tombstone_names(tmp_path, names):
    """A clean executes both at once."""
    lab = directory_lab(tmp_path, images("ab", 2), cache=None, growth={"mode": "rebuild"})
    first, second = grown(lab, 2)
    (segment,) = {each.id for each in lab.check()[first].version.segments}
    units = (f"versions/{first}", f"segments/{segment}")
    (lab.folder / "tombstones").mkdir()
    for name, unit in zip(names, units, strict=True):
        (lab.folder / f"tombstones/{name}.json").write_bytes(seal(Tombstone((unit,))))
    assert cleaned(lab)["status"] == "cleaned"
    assert lab.check().keys() == {second}
    assert not list((lab.folder / units[1]).rglob("*.*"))
    assert cleaned(lab)["status"] == "current"


RECORD = f"{MIRROR.uploads}0.json"


class UploadingStore(DelegatingStore):
    """Says that the inner store has uploads in parts."""

    @property
    def features(self) -> Features:
        place = BucketPrefix("s3", "", "b", "")
        return replace(self.inner.features, uploads=True, place=place)


def test_recorded_uploads_stay_while_a_run_is_in_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", -1.0)
    lab = memory_lab(tmp_path)
    with between():
        lab.prepare()
    with lab.opened_root() as root:
        root.put(RECORD, b'{"upload": "u", "object": ["k"]}')
        Claim.of_run([]).take(root)
        with between(UploadingStore):
            cleaned(lab)
        assert RECORD in keys_of(root)


def test_an_upload_with_a_record_stays_also_if_the_record_cannot_be_read(monkeypatch):
    faulty = FaultyStore(open_store("memory://records"))
    store, calls = UploadingStore(faulty), []
    monkeypatch.setattr(store, "abort_uploads", lambda seconds, kept: calls.append(kept))
    faulty.put(RECORD, b'{"upload": "u", "object": ["k"]}')
    records = uploads.UploadRecords(store, MIRROR.uploads)
    records.abort_unrecorded(lambda: None)
    assert calls == [{"u"}]
    faulty.add("get", unavailable(), times=None)
    records.abort_unrecorded(lambda: None)
    records.abort_recorded(1 << 62)
    assert calls == [{"u"}]
    assert keys_of(faulty) == [RECORD]


@pytest.mark.parametrize("act", ["clean", "build"])
def test_uploads_stay_that_a_run_in_progress_may_have_begun(new, monkeypatch, act):
    """Two days ago; the lease of an older run has ended."""
    seconds: list[float] = []
    monkeypatch.setattr(UploadingStore, "abort_uploads", lambda _, age, kept: seconds.append(age))
    if act == "clean":
        new.prepare()
    store = open_store(str(new.folder))
    for days in (2, 8):
        claim = Claim.of_run([])
        claim.take(store)
        begun = time.time() - days * 24 * 3600
        os.utime(new.folder / layout.lease_key(claim.name), (begun, begun))
    with between(UploadingStore):
        cleaned(new) if act == "clean" else new.prepare()
    (age,) = seconds
    assert 0 <= age - 3 * 24 * 3600 < 3600


@pytest.mark.parametrize("plan_only", [False, True])
def test_old_uploads_are_aborted_if_nothing_is_due(tmp_path, monkeypatch, plan_only):
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", -1.0)
    lab, recorder = memory_lab(tmp_path), Recorder()
    with between():
        lab.prepare()
    with lab.opened_root() as root:
        root.put(RECORD, b'{"upload": "u", "object": ["k"]}')
        with between(lambda store: UploadingStore(recorder(store))):
            assert cleaned(lab, grace="24h", plan_only=plan_only)["status"] == "current"
        assert bool(recorder.keys("abort_uploads")) != plan_only
        assert (RECORD in keys_of(root)) == plan_only


@pytest.mark.parametrize(("grace", "stays"), [("0h", False), ("24h", True)])
def test_temporary_files_are_removed_without_a_grace_time(tmp_path, grace, stays):
    lab = directory_lab(tmp_path)
    lab.prepare()
    left = lab.folder / "work" / f"{DRAFT_PREFIX}{'0' * 24}"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"x")
    assert cleaned(lab, grace=grace)["status"] == "current"
    assert left.exists() == stays
