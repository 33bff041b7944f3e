"""A version in a bucket is verified and repaired like one in a directory, with several requests."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pipeline_lab import DECODED, Lab, images, reach, write
from verify_lab import DAMAGES, DOCUMENTS, damaged, findings, published, sibling_of, verified

from tests.support.servers import S3Server

pytestmark = pytest.mark.push

FIELDS = {**DECODED, "validate": "header", "cache": {"records": "encoded"}, "mirror": False}


@pytest.mark.parametrize("name", ["rclone", pytest.param("radosgw", marks=pytest.mark.radosgw)])
def test_damage_in_a_bucket_is_found_and_repaired(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: S3Server = request.getfixturevalue(f"{name}_server")
    server.create_bucket("verify")
    base = f"s3://verify/{uuid.uuid4().hex[:12]}"
    source, storage = ({"url": f"{base}/{end}", **reach(server)} for end in ("source", "local"))
    write(**source, objects=images(each=6))
    lab = Lab(source, storage, tmp_path, FIELDS)
    lab.prepare()
    assert verified(lab)["status"] == "intact"
    with lab.opened_root() as root:
        files = published(root)
        for suffix in (".tar", ".mdb", ".idx", *DOCUMENTS, ".parquet"):
            key = next(key for key in files if key.endswith(suffix))
            for damage in ("middle byte flipped", "truncated by one", "emptied", "removed"):
                wrong = DAMAGES[damage](files[key], files[sibling_of(key, files)])
                with damaged(root, key, wrong):
                    assert key in findings(verified(lab)), f"{damage} of {key}"
                    document = verified(lab, repair=True)
                    refused = suffix in DOCUMENTS
                    assert document["status"] == ("damaged" if refused else "repaired")
                    assert published(root).get(key) == (wrong if refused else files[key])
