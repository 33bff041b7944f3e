"""A dataset that grows between two prefixes of real S3 servers, and is compacted."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import DOCUMENT, Lab, Listing, directory_lab, images, listing, opened, png, write

import larder
from larder.pipeline.prepare import prepare
from tests.support.checker import Published
from tests.support.runs import forget_manifests
from tests.support.servers import S3Server

pytestmark = pytest.mark.exhaustive

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"validation": "c/**", "train": "**"},
    "shards": {"bytes": 10_000},
    "validate": "decode",
    "cache": {"records": "encoded"},
}
OBJECTS = images(each=8)
ADDED = {"a/01.png": png(9), "d/00.png": png(50), "c/08.png": png(51)}
GROWN = OBJECTS | ADDED
del GROWN["b/02.png"]
SERVERS = ["rclone", pytest.param("radosgw", marks=pytest.mark.radosgw)]


class BucketLab(Lab):
    """From one prefix of a server to another."""

    def compact(self) -> DOCUMENT:
        forget_manifests()
        return prepare(replace(self.settings(), compact=True))

    def listing(self) -> Listing:
        storage = self.settings().cluster.storage
        return listing(storage.url, endpoint=storage.access.endpoint, region=storage.access.region)

    def open(self, cache_dir: Path) -> larder.Dataset:
        storage = self.settings().cluster.storage
        return larder.open(
            f"{storage.url}/larder/d",
            endpoint=storage.access.endpoint,
            region=storage.access.region,
            cache_dir=cache_dir,
        )


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return found


def place(server: S3Server, kind: str) -> dict[str, str]:
    server.create_bucket("growth")
    url = f"s3://growth/{uuid.uuid4().hex[:12]}/{kind}"
    return {"url": url, "endpoint": server.endpoint, "region": server.region}


def grow(source: dict[str, str]) -> None:
    """One sample changes, one goes, two come, one of them of a new class."""
    options = {name: source[name] for name in ("endpoint", "region")}
    write(source["url"], ADDED, **options)
    with opened(source["url"], **options) as store:
        store.delete("b/02.png")


def contents(published: Published) -> dict[str, bytes]:
    return {sample.key: sample.parts["png"] for own in published.samples.values() for sample in own}


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("removals", ["repack", "omit"])
def test_a_growth_and_a_compaction(
    server: S3Server, tmp_path: Path, removals: str, mirror: bool
) -> None:
    source = place(server, "source side")
    write(source["url"], OBJECTS, endpoint=server.endpoint, region=server.region)
    fields = {**FIELDS, "mirror": mirror, "growth": {"removals": removals}}
    lab = BucketLab(source, place(server, "local side"), tmp_path / "out", fields)
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
    wanted = {key[: -len(".png")]: data for key, data in GROWN.items() if key.endswith(".png")}
    checked = lab.check()
    assert set(checked) == {first["version"], grown["version"]}
    published = checked[grown["version"]]
    assert contents(published) == wanted
    assert list(published.version.classes) == ["a", "b", "c", "d"]
    before = lab.listing()
    assert lab.prepare()["status"] == "reused"
    assert lab.listing() == before

    data = lab.open(tmp_path / "downloads")
    assert data.version == grown["version"]
    read = {}
    for split in ("train", "validation"):
        with data.cache(split, verify=True) as cache:
            read |= {record["key"]: bytes(record["png"]) for record in cache}
    assert read == wanted
    if removals == "repack":
        with lab.opened_root() as root:
            by_pattern = published.read_by_pattern(root)
        assert {s.key for own in by_pattern.values() for s in own} == set(wanted)

    compacted = lab.compact()
    assert compacted["segments"] == {"total": 1, "new": 1, "omitted": 0}
    assert compacted["copied"]["count"] == 0
    fresh = directory_lab(tmp_path, GROWN, **FIELDS).prepare()
    assert compacted["digest"] == fresh["digest"]
    assert contents(lab.check()[compacted["version"]]) == wanted
    assert lab.compact()["status"] == lab.prepare()["status"] == "reused"
