"""A complete run within Google Cloud Storage, as an emulator answers."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pipeline_lab import DECODED, Lab, directory_lab, images, png

import larder
from larder.store import ObjectInfo, Store, open_store
from tests.support.gcs_emulator import GcsEmulator

FIELDS: dict[str, Any] = {
    **DECODED,
    "mirror": True,
}
METADATA = {"camera": "left"}
Place = dict[str, Any]


def store_of(place: Mapping[str, Any], below: str = "") -> Store:
    return open_store(f"{place['url']}/{below}", endpoint=place.get("endpoint"))


@pytest.fixture
def places(gcs_server: GcsEmulator) -> Iterator[Place]:
    """Fresh places."""
    gcs_server.create_bucket("pipeline")
    names = iter(lambda: f"gs://pipeline/{uuid.uuid4().hex}/a b", "")
    return ({"url": url, "endpoint": gcs_server.endpoint} for url in names)


def fill(place: Place, objects: Mapping[str, bytes]) -> None:
    like = ObjectInfo("", 0, "", 0, content_type="image/x-noise", metadata=METADATA)
    store = store_of(place)
    for key, data in objects.items():
        store.put(key, data, like=like)


def listing(place: Place) -> dict[str, tuple[str, str | None]]:
    return {i.key: (i.etag, i.generation) for page in store_of(place).list() for i in page}


def test_a_run_in_a_bucket_is_repeated_grown_and_read(places, tmp_path):
    here, there = next(places), next(places)
    fill(here, images())
    lab = Lab(here, there, tmp_path / "out", FIELDS)
    first = lab.prepare()
    with store_of(there, "larder/d/mirror").open("a/00.png") as reader:
        assert b"".join(reader) == images()["a/00.png"]
    assert (reader.info.content_type, reader.info.metadata) == ("image/x-noise", METADATA)
    local = directory_lab(tmp_path / "beside", **{**FIELDS, "mirror": False})
    assert local.prepare()["digest"] == first["digest"]
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
