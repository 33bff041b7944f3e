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
def roots(rclone_server, gcs_server):
    """A folder of a bucket in S3, and one in Google Cloud Storage."""
    name = f"orders-{uuid.uuid4().hex[:12]}"
    for server in (rclone_server, gcs_server):
        server.create_bucket(name)
    with pytest.MonkeyPatch.context() as patch:
        for text in (rclone_server.environment | gcs_server.environment).items():
            patch.setenv(*text)
        yield [f"s3://{name}", f"gs://{name}"]


@pytest.fixture(scope="module")
def addresses(roots, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    lab = directory_lab(folder, images(), splits={"train": "**"}, cache=None)
    for root in roots:
        replace(lab, storage={"url": root}).prepare()
    return [f"{root}/larder/d@latest" for root in roots]


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


def test_the_first_example_of_cached_functions_uses_buckets(roots):
    for root in roots:  # each in a process of its own
        assert run("of_page", [f"{root}/functions"]) == [1000]
