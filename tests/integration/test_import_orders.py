"""Buckets are read whichever of TensorFlow, Keras, PyTorch and Larder is imported first."""

import uuid
from dataclasses import replace
from sysconfig import get_path

import pytest
from pipeline_lab import directory_lab, images
from required import read_with_frameworks

pytestmark = pytest.mark.push

KEYS = sorted(key.removesuffix(".png") for key in images() if key.endswith(".png"))


@pytest.fixture(scope="module")
def addresses(rclone_server, gcs_server, tmp_path_factory):
    """A version in S3, and one in Google Cloud Storage."""
    name = f"orders-{uuid.uuid4().hex[:12]}"
    for server in (rclone_server, gcs_server):
        server.create_bucket(name)
    with pytest.MonkeyPatch.context() as patch:
        for text in (rclone_server.environment | gcs_server.environment).items():
            patch.setenv(*text)
        folder = tmp_path_factory.mktemp("lab")
        lab = directory_lab(folder, images(), splits={"train": "**"}, cache=None)
        for root in (f"s3://{name}", f"gs://{name}"):
            replace(lab, storage={"url": root}).prepare()
        yield [f"{kind}://{name}/larder/d@latest" for kind in ("s3", "gs")]


def run(function, given):
    # The environment of the frameworks has no gcsfs.
    return read_with_frameworks("with_import_orders", [function, given, get_path("platlib")])


def test_buckets_are_read_whichever_framework_is_imported_first(addresses):
    read = run("first_framework", addresses)
    assert read.keys() == {"here", "forked", "spawned"}
    for place, (of_s3, of_gcs) in read.items():
        assert sorted(of_s3) == sorted(of_gcs) == KEYS, place


def test_workers_whose_function_imports_tensorflow_read_a_bucket(addresses):
    (before,), (after,) = run("in_workers", addresses[:1])
    assert sorted(before) == sorted(after) == KEYS
