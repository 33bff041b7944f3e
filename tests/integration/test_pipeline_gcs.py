"""Complete runs from, to and within Google Cloud Storage, as an emulator answers."""

import random
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, contents, directory_lab, images, png

import larder
from larder.store import ObjectInfo, Store, open_store
from tests.support.gcs_emulator import GcsEmulator
from tests.support.servers import S3Server

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
    "shards": {"bytes": 8_000},
    "validate": "decode",
    "cache": {"records": "decoded"},
    "mirror": True,
}
METADATA = {"camera": "left"}
LARGE = random.Random(2).randbytes((16 << 20) * 2 + 5)
Place = dict[str, Any]


def store_of(place: Mapping[str, Any], below: str = "") -> Store:
    return open_store(f"{place['url']}/{below}", endpoint=place.get("endpoint"))


class Places:
    """Fresh places of each kind."""

    def __init__(self, gcs: GcsEmulator, s3: S3Server, folder: Path) -> None:
        self.gcs, self.s3, self.folder = gcs, s3, folder

    def __call__(self, kind: str) -> Place:
        name = uuid.uuid4().hex[:12]
        if kind == "file":
            return {"url": str(self.folder / name)}
        server: GcsEmulator | S3Server = self.gcs if kind == "gs" else self.s3
        server.create_bucket("pipeline")
        region = {} if kind == "gs" else {"region": self.s3.region}
        return {"url": f"{kind}://pipeline/{name}/a b", "endpoint": server.endpoint, **region}


@pytest.fixture
def places(gcs_server: GcsEmulator, rclone_server: S3Server, tmp_path: Path) -> Places:
    return Places(gcs_server, rclone_server, tmp_path)


def fill(place: Place, objects: Mapping[str, bytes]) -> None:
    like = ObjectInfo("", 0, "", 0, content_type="image/x-noise", metadata=METADATA)
    store = store_of(place)
    for key, data in objects.items():
        store.put(key, data, like=like)


def listing(place: Place) -> dict[str, tuple[str, str | None]]:
    return {i.key: (i.etag, i.generation) for page in store_of(place).list() for i in page}


@pytest.mark.parametrize(
    ("source", "storage"),
    [("gs", "gs"), ("gs", "s3"), ("s3", "gs"), ("gs", "file"), ("file", "gs")],
)
@pytest.mark.exhaustive
def test_a_dataset_is_the_same_between_any_two_stores(places, tmp_path, source, storage):
    objects = images() | {"c/large.bin": LARGE}
    here, there = places(source), places(storage)
    fill(here, objects)
    lab = Lab(here, there, tmp_path / "out", FIELDS | {"validate": "none", "cache": None})
    first = lab.prepare()
    assert first["copied"] == {"count": 16, "bytes": sum(map(len, objects.values()))}
    mirror = store_of(there, "larder/d/mirror")
    for key, data in objects.items():
        with mirror.open(key) as reader:
            assert b"".join(reader) == data
        if "file" not in (source, storage):
            assert reader.info.content_type == "image/x-noise"
            assert METADATA.items() <= (reader.info.metadata or {}).items()
    local = directory_lab(tmp_path / "beside", objects, **{**lab.fields, "mirror": False})
    assert local.prepare()["digest"] == first["digest"]
    assert contents(lab.only()) == contents(local.only())


def test_a_run_in_a_bucket_is_repeated_grown_and_read(places, tmp_path):
    here, there = places("gs"), places("gs")
    fill(here, images())
    lab = Lab(here, there, tmp_path / "out", FIELDS)
    first = lab.prepare()
    before = listing(there)
    again, recorder = lab.recorded()
    assert again["status"] == "reused"
    assert listing(there) == before
    assert not {call.method for call in recorder.calls} & {"put", "copy_from"}

    fill(here, {"a/01.png": png(9), "a/00.png": images()["a/00.png"]})
    third = lab.prepare()
    assert third["copied"] == {"count": 1, "bytes": len(png(9))}, "the other has the same bytes"
    assert lab.check().keys() == {first["version"], third["version"]}
    url, access = f"{there['url']}/larder/d", {"endpoint": there["endpoint"]}
    with larder.open(url, cache_dir=tmp_path, **access).cache("validation", verify=True) as cache:
        assert [record["key"] for record in cache] == ["c/00", "c/01", "c/02", "c/03"]
