"""Archives as sources: ``source.archives: expand``."""

import os
import tarfile
import uuid
from pathlib import Path

import pytest
from archives_lab import archive_lab, by_class, imagenet, reads, samples, tar, with_source
from pipeline_lab import DECODED, Lab, images, listing, png, reach, write
from pydantic import ValidationError

from larder.jobs.results import RunError
from tests.support.servers import S3Server


def expected(prefix: str, classes: str = "abc") -> dict[str, dict[str, bytes]]:
    """The same from the images themselves; ``{}`` in the prefix is the class."""
    found: dict[str, dict[str, bytes]] = {}
    for key, data in images(classes).items():
        folder, _, name = key.partition("/")
        stem, _, ext = name.partition(".")
        parts = found.setdefault(f"{prefix.format(folder)}/{stem}", {"cls": folder.encode()})
        parts[ext] = data
    return found


def test_globs_match_members_or_archives(tmp_path):
    objects = {"in/train.tar": imagenet(), "val.tar": imagenet("de"), "test.tar": b"not read"}
    lab = with_source(
        archive_lab(tmp_path, objects),
        include=["in/*.tar/a*/*.png", "val.tar"],
        exclude=["**/0[2-9]*"],
    )
    document = lab.plan()
    assert document["excluded"]["not_included"]["keys"][0] == "test.tar"
    assert document["objects"]["count"] == 2 + 6
    assert document["inside"] == {"containers": 2, "read": 2, "objects": 15 + 10}
    assert document["excluded"]["listed"] == 1 + 15 + 10
    lab.prepare()
    assert set(samples(lab)) == {
        "in/train.tar/a.tar/00",
        "in/train.tar/a.tar/01",
        *(f"val.tar/{name}.tar/0{number}" for name in "de" for number in range(2)),
    }


def test_links_and_unsafe_members_are_not_left_out_silently(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as file:
        for key, data in by_class("a")["a"].items():
            (tmp_path / key).write_bytes(data)
            file.add(tmp_path / key, f"a/{key}")
        for unsafe in ("a/../x.jpg", "inner.tar.gz"):
            file.addfile(tarfile.TarInfo(unsafe))
        for kind in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"a/9{kind.decode()}.png")
            info.type, info.linkname = kind, "a/00.png"
            file.addfile(info)
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
    lab = archive_lab(tmp_path, {"x.tar": path.read_bytes()})
    with pytest.raises(RunError) as caught:
        lab.prepare()
    found = caught.value.report.failures
    assert {failure.code for failure in found} == {"config.bad_key"}
    assert {"x.tar/a/../x.jpg", "x.tar/inner.tar.gz"} < {failure.key for failure in found}
    assert lab.prepare(on_bad_key="skip")["skipped"] == len(found) == 5
    assert samples(lab) == expected("x.tar/{}", "a")


def test_of_members_with_one_name_the_last_counts(tmp_path):
    first, second = by_class("ab").values()
    path = tmp_path / "x.tar"
    for mode, found in (("w", first), ("a", second)):
        with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
            for name, data in found.items():
                (tmp_path / name).write_bytes(data)
                file.add(tmp_path / name, f"a/{name}")
    lab = archive_lab(tmp_path, {"x.tar": path.read_bytes()})
    lab.prepare()
    found = samples(lab)
    assert {key: value["png"] for key, value in found.items()} == {
        f"x.tar/a/{name[:2]}": data for name, data in second.items() if name.endswith("png")
    }


def test_a_member_and_an_object_with_one_key_are_refused(tmp_path):
    url = "memory://archives-clash"
    write(url, {"x.tar": imagenet("ab"), "x.tar/a.tar/00.png": b"1"})
    source, fields = {"url": url, "archives": "expand"}, {"validate": "none"}
    lab = Lab(source, str(tmp_path / "local"), tmp_path / "out", fields)
    with pytest.raises(RunError) as caught:
        lab.prepare()
    assert [failure.line for failure in caught.value.report.failures] == [
        "x.tar/a.tar/00.png: another object has the same key"
    ]


def test_compressed_archives_are_refused(tmp_path):
    lab = archive_lab(tmp_path, {"x.tar": imagenet(), "y.tar.gz": b"1", "z.tgz": b"2"})
    with pytest.raises(RunError) as caught:
        lab.plan()
    assert [failure.key for failure in caught.value.report.failures] == ["y.tar.gz", "z.tgz"]
    assert with_source(lab, exclude=["*.tar.gz", "*.tgz"]).prepare()["status"] == "built"


def test_members_cannot_be_mirrored(tmp_path):
    lab = archive_lab(tmp_path, {"x.tar": imagenet()})
    with pytest.raises(ValidationError):
        lab.plan(mirror=True)
    assert lab.plan()["mirror"]["wanted"] is False


FIELDS = {name: field for name, field in DECODED.items() if name != "splits"}


def classes(names: str) -> dict[str, bytes]:
    found = by_class()
    return {f"{name}.tar": tar(found[name]) for name in names}


@pytest.mark.push
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


@pytest.mark.push
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


@pytest.mark.push
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


@pytest.mark.push
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
