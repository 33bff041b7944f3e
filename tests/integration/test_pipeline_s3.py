"""Complete runs between real S3 servers, and within an emulator of Google Cloud Storage."""

import uuid
from typing import Any

import pytest
from pipeline_lab import (
    DECODED,
    Lab,
    directory_lab,
    images,
    listing,
    objects_of,
    opened,
    png,
    reach,
    write,
)
from required import at_night

import larder
from larder.copy import uploads
from tests.support.servers import S3Server

pytestmark = pytest.mark.push


def place(server: Any, kind: str) -> dict[str, str]:
    server.create_bucket("pipeline")
    path = f"pipeline/{uuid.uuid4().hex[:12]}/{kind} side"
    if isinstance(server, S3Server):
        return {"url": f"s3://{path}", **reach(server)}
    return {"url": f"gs://{path}", "endpoint": server.endpoint}


@pytest.fixture(
    params=["rclone", "moto", pytest.param("radosgw", marks=pytest.mark.radosgw), "gcs"]
)
def anywhere(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_server")


OBJECTS = images(each=8)
ADDED = {"a/01.png": png(9), "d/00.png": png(50), "c/08.png": png(51)}
GROWN = OBJECTS | ADDED
del GROWN["b/02.png"]
GROWING = {
    **DECODED,
    "splits": {"validation": "c/**", "train": "**"},
    "shards": {"bytes": 10_000},
    "cache": {"records": "encoded"},
}


def grow(source: dict[str, str]) -> None:
    """One sample changes, one goes, two come, one of a new class; one is written as it was."""
    write(**source, objects={**ADDED, "a/00.png": OBJECTS["a/00.png"]})
    with opened(**source) as store:
        store.delete("b/02.png")


@pytest.mark.parametrize(("removals", "mirror"), [("repack", True), *at_night(("omit", False))])
def test_a_growth_and_a_compaction(anywhere, tmp_path, removals, mirror):
    source = place(anywhere, "source side")
    write(**source, objects=OBJECTS)
    fields = {**GROWING, "mirror": mirror, "growth": {"removals": removals}}
    lab = Lab(source, place(anywhere, "local side"), tmp_path / "out", fields)
    first = lab.prepare()
    grow(source)

    planned = lab.plan()
    grown = lab.prepare()
    for same in ("version", "copied", "segments"):
        assert planned[same] == grown[same]
    segments = grown["segments"]
    assert (segments["total"], segments["new"]) == (2, 1)
    if removals == "omit":
        assert segments["omitted"] == 2
    else:  # with their neighbours, all of their shards, which are listed no longer
        assert segments["omitted"] > 2
    copied = sum(map(len, ADDED.values()))
    assert grown["copied"] == {"count": 3 * mirror, "bytes": copied * mirror}
    checked = lab.check()
    assert set(checked) == {first["version"], grown["version"]}
    published = checked[grown["version"]]
    assert objects_of(published) == GROWN
    assert list(published.version.classes) == ["a", "b", "c", "d"]
    before = listing(**lab.storage)
    assert lab.prepare()["status"] == "reused"
    assert listing(**lab.storage) == before

    access = dict(lab.storage)
    url = f"{access.pop('url')}/larder/d"
    data = larder.open(url, cache_dir=tmp_path / "downloads", **access)
    assert data.version == grown["version"]
    read = {}
    for split in ("train", "validation"):
        with data.cache(split, verify=True) as cache:
            read |= {f"{record['key']}.png": bytes(record["png"]) for record in cache}
    assert read == {key: data for key, data in GROWN.items() if key.endswith(".png")}

    compacted = lab.compact()
    assert compacted["segments"] == {"total": 1, "new": 1, "omitted": 0}
    assert compacted["copied"]["count"] == 0
    fresh = directory_lab(tmp_path, GROWN, **GROWING).prepare()
    assert compacted["digest"] == fresh["digest"]
    assert objects_of(lab.newest()) == GROWN
    assert lab.compact()["status"] == lab.prepare()["status"] == "reused"


def test_uploads_that_killed_runs_have_left_are_aborted(server, tmp_path, monkeypatch):
    source = place(server, "source")
    write(**source, objects=images())
    lab = Lab(source, place(server, "local"), tmp_path / "out", {**DECODED, "mirror": True})
    prefix = lab.storage["url"].removeprefix("s3://pipeline/")
    client = server.client()
    for key in ("larder/d/segments/5eed/shards/train/d-train-000000.tar", "larder/other/x", "x"):
        client.create_multipart_upload(Bucket="pipeline", Key=f"{prefix}/{key}")
    client.close()
    lab.prepare()
    begun = server.uploads("pipeline", f"{prefix}/")
    if server.name != "moto":  # which says 2010 of all of them
        assert len(begun) == 3, "they are of today"
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", -60.0)
    lab.prepare(shards={"bytes": 9_000})
    assert server.uploads("pipeline", f"{prefix}/") == [f"{prefix}/larder/other/x", f"{prefix}/x"]
