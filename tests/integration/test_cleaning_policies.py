"""A clean deletes what an earlier clean announced only where its own policy lets it go."""

import os
import shutil
import time
from dataclasses import replace

import pytest
from catalog_lab import cleaned, drop_all, grown
from pipeline_lab import directory_lab, images, png

from larder.manifest.sealed import seal
from larder.versions.leases import Tombstone
from tests.support.stores import KeyStop

OLDER_SECONDS = 25 * 3600
"""Longer than the grace time also where the machine's clock is set back meanwhile."""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A dataset with four versions, and these in their order; each test has a copy."""
    lab = directory_lab(tmp_path_factory.mktemp("published"), images("ab", 2), cache=None)
    return lab, grown(lab, 4)


@pytest.fixture
def lab(published, tmp_path):
    lab, _ = published
    return replace(lab, storage=shutil.copytree(lab.storage, tmp_path / "local"))


@pytest.fixture
def versions(published):
    return published[1]


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
