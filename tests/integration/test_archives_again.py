"""Archives that are read once: runs that follow, that grow, and that were cut off."""

import os
import uuid
from pathlib import Path

import pytest
from archives_lab import archive_lab, by_class, imagenet, reads, samples, tar
from pipeline_lab import DECODED, Lab, listing, png, reach, write

from tests.support.servers import S3Server

pytestmark = pytest.mark.push

FIELDS = {name: field for name, field in DECODED.items() if name != "splits"}


def classes(names: str) -> dict[str, bytes]:
    """An archive for each class."""
    found = by_class()
    return {f"{name}.tar": tar(found[name]) for name in names}


def test_a_touched_archive_is_compared_not_packed(tmp_path):
    lab = archive_lab(tmp_path, classes("ab"))
    first = lab.prepare()
    path = Path(lab.source["url"], "a.tar")  # type: ignore[index]
    os.utime(path, ns=(1, 1))
    growth = lab.plan()["growth"]["samples"]
    assert (growth["added"], growth["changed"], growth["unchanged"]) == (0, 0, 8)
    second, calls = reads(lab.prepare)
    assert second["digest"] == first["digest"]
    assert {call.key for call in calls} == {"a.tar"}
    third, calls = reads(lab.prepare)
    assert (third["status"], calls) == ("reused", [])


def test_a_member_that_changed_is_packed_again(tmp_path):
    lab = archive_lab(tmp_path, classes("ab"))
    lab.prepare()
    members = by_class()["a"] | {"01.png": png(77)}
    write(str(lab.source["url"]), {"a.tar": tar(members)})  # type: ignore[index]
    growth = lab.plan()["growth"]["samples"]
    assert (growth["changed"], growth["unchanged"]) == (1, 7)
    second = lab.prepare()
    assert samples(lab, second)["a.tar/01"]["png"] == png(77)


@pytest.fixture
def bucket(rclone_server: S3Server) -> dict[str, str]:
    rclone_server.create_bucket("archives")
    return {"url": f"s3://archives/{uuid.uuid4().hex[:12]}/source", **reach(rclone_server)}


def test_from_a_bucket(bucket, tmp_path):
    write(**bucket, objects={"train.tar": imagenet()})
    source = {**bucket, "archives": "expand"}
    lab = Lab(source, str(tmp_path / "local"), tmp_path / "out", FIELDS)
    local = archive_lab(tmp_path / "beside", {"train.tar": imagenet()}, **FIELDS)
    document, calls = reads(lab.prepare)
    assert document["digest"] == local.prepare()["digest"]
    assert {call.key for call in calls} == {"train.tar"}
    assert len(calls) < 20, "15 members, and their headers"
    assert document["copied"]["count"] == 0
    document, calls = reads(lab.prepare)
    assert (document["status"], calls) == ("reused", [])
    planned = lab.plan(shards={"bytes": 9_000})
    assert planned["inside"] == {"containers": 1, "read": 0, "objects": 15}
    write(**bucket, objects={"more.tar": tar({"a/05.png": png(5)})})
    assert lab.plan()["growth"]["samples"]["added"] == 1
    _, calls = reads(lab.prepare)
    assert {call.key for call in calls} == {"more.tar"}


def test_a_run_takes_the_index_that_its_plan_has_kept(bucket, tmp_path, monkeypatch):
    kept = tmp_path / "cache"
    monkeypatch.setenv("LARDER_CACHE_DIR", str(kept))
    write(**bucket, objects={"train.tar": imagenet()})
    target = {**bucket, "url": bucket["url"].replace("source", "local")}
    lab = Lab({**bucket, "archives": "expand"}, target, tmp_path / "out", FIELDS)
    document, calls = reads(lab.plan)
    assert document["inside"]["read"] == 1
    assert calls
    (index,) = kept.rglob("*.parquet")
    assert listing(**target) == {}
    document, calls = reads(lab.plan)
    assert document["inside"]["read"] == 0
    assert [call.size_bytes for call in calls] == [1], "whether it may be read at all"
    index.write_bytes(index.read_bytes()[:-9])
    document, _ = reads(lab.plan)
    assert document["inside"]["read"] == 1, "it was damaged, and is made again"
    document, calls = reads(lab.prepare)
    assert document["status"] == "built"
    sizes = [call.size_bytes for call in calls]
    assert sizes[0] == 1
    assert min(sizes[1:]) > 2 << 10, "members, and no headers, which begin with 2 KiB"
    assert list(kept.rglob("*.parquet")) == []
    assert len([key for key in listing(**target) if "derived" in key]) == 1
