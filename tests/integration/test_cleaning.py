"""What a clean deletes, what it leaves, and when it refuses."""

import os

import pytest
from catalog_lab import cleaned, grown
from pipeline_lab import directory_lab, images

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
    day_ago = os.stat(lab.folder / tombstone).st_mtime - 24 * 3600
    os.utime(lab.folder / tombstone, (day_ago, day_ago))
    done = cleaned(lab, grace="24h")
    assert done["status"] == "cleaned"
    assert done["deleted"] == {name: plan["due"][name] for name in ("count", "bytes")}
    assert lab.check().keys() == {third}
    left = files(lab)
    assert {key.split("/")[1] for key in left if key.startswith("versions/")} == {third}
    assert not any(key.startswith("tombstones/") for key in left)
    assert lab.prepare()["status"] == "reused"


def test_a_growth_keeps_the_segments_that_it_names(lab):
    second = grown(lab, 2)[-1]
    assert cleaned(lab)["deleted"]["count"] > 0
    (published,) = lab.check().values()
    assert len(published.version.segments) == 2
    assert published.version.id == second
    assert cleaned(lab)["status"] == "current"
