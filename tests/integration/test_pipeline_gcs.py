"""A complete run within Google Cloud Storage, as an emulator answers."""

import uuid

import pytest
from pipeline_lab import DECODED, Lab, directory_lab, images, listing, opened, png

import larder
from larder.store import ObjectInfo

METADATA = {"camera": "left"}


@pytest.mark.push
def test_a_run_in_a_bucket_is_repeated_grown_and_read(gcs_server, tmp_path):
    gcs_server.create_bucket("pipeline")
    urls = (f"gs://pipeline/{uuid.uuid4().hex}/a b" for _ in range(2))
    here, there = ({"url": url, "endpoint": gcs_server.endpoint} for url in urls)
    like = ObjectInfo("", 0, "", 0, content_type="image/x-noise", metadata=METADATA)

    def fill(objects: dict[str, bytes]) -> None:
        with opened(**here) as store:
            for key, data in objects.items():
                store.put(key, data, like=like)

    fill(images())
    lab = Lab(here, there, tmp_path / "out", {**DECODED, "mirror": True})
    first = lab.prepare()
    with opened(**there) as store, store.open("larder/d/mirror/a/00.png") as reader:
        assert b"".join(reader) == images()["a/00.png"]
    assert (reader.info.content_type, reader.info.metadata) == ("image/x-noise", METADATA)
    assert directory_lab(tmp_path / "beside", **DECODED).prepare()["digest"] == first["digest"]
    before = listing(**there)
    again, recorder = lab.recorded()
    assert again["status"] == "reused"
    assert listing(**there) == before
    assert not {call.method for call in recorder.calls} & {"put", "copy_from"}

    fill({"a/01.png": png(9), "a/00.png": images()["a/00.png"]})
    third = lab.prepare()
    assert third["copied"] == {"count": 1, "bytes": len(png(9))}, "the other has the same bytes"
    assert lab.check().keys() == {first["version"], third["version"]}
    url, access = f"{there['url']}/larder/d", {"endpoint": there["endpoint"]}
    with larder.open(url, cache_dir=tmp_path, **access).cache("validation", verify=True) as cache:
        assert [record["key"] for record in cache] == ["c/00", "c/01", "c/02", "c/03"]
