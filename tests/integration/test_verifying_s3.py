"""A version in a bucket is verified and repaired like one in a directory, with several requests."""

from __future__ import annotations

import uuid

import pytest
from pipeline_lab import Lab, images, write
from verify_lab import (
    DAMAGES,
    SPLITS,
    damaged,
    findings,
    published,
    sibling_of,
    verified,
)

from tests.support.servers import S3Server

pytestmark = pytest.mark.exhaustive


@pytest.fixture(
    scope="module", params=["rclone", pytest.param("radosgw", marks=pytest.mark.radosgw)]
)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    server: S3Server = request.getfixturevalue(f"{request.param}_server")
    server.create_bucket("verify")
    base = f"s3://verify/{uuid.uuid4().hex[:12]}"
    access = {"endpoint": server.endpoint, "region": server.region}
    write(f"{base}/source", images(each=6), **access)
    made = Lab(
        {"url": f"{base}/source", **access},
        {"url": f"{base}/local", **access},
        tmp_path_factory.mktemp("out"),
        {
            "labels": {"from": "folder"},
            "splits": SPLITS,
            "shards": {"bytes": 8_000},
            "validate": "header",
            "cache": {"records": "encoded"},
            "mirror": False,
        },
    )
    made.prepare()
    return made


@pytest.mark.exhaustive
def test_damage_in_a_bucket_is_found_and_repaired(lab: Lab) -> None:
    assert verified(lab)["status"] == "intact"
    with lab.opened_root() as root:
        files = published(root)
        documents = ("segment.json", "cache.json", "version.json")  # a lost tag is never guessed
        kinds = (".tar", ".mdb", ".idx", *documents, ".parquet")
        for suffix in kinds:
            key = next(key for key in files if key.endswith(suffix))
            for damage in ("middle byte flipped", "truncated by one", "emptied", "removed"):
                wrong = DAMAGES[damage](files[key], files[sibling_of(key, files)])
                with damaged(root, key, wrong):
                    assert key in findings(verified(lab)), f"{damage} of {key}"
                    document = verified(lab, repair=True)
                    assert document["status"] == "repaired", document["findings"]
                    assert published(root) == files
