"""ImageNet's official layout, 3,000 JPEGs, from one bucket to another on a real S3 server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from webdataset import tariterators

import larder
from larder.store import open_store
from larder.store.base import Store
from tests.support.checker import check_all
from tests.support.commands import Finished, Workplace
from tests.support.demo import demo_environment
from tests.support.imagenet import write_imagenet
from tests.support.servers import S3Server

pytestmark = pytest.mark.slow

IMAGES, VALIDATION, CLASSES = 3000, 300, 20
ASKED = ("--dataset", "imagenet", "--cluster", "aws-us-west-2", "--json")
ASKED += ("--set", "shards.bytes=10 MB", "--set", "cluster.runner.batch_bytes=40 MB")
ASKED += ("--set", "mirror=true")


@pytest.fixture(scope="module")
def variables(s3_server: S3Server) -> dict[str, str]:
    """The variables of the command; both buckets exist, the source is filled."""
    found = demo_environment(s3_server, s3_server)
    mark = uuid.uuid4().hex[:8]
    found["IMAGENET_SOURCE"] = f"s3://source-{mark}/imagenet"
    found["LARDER_STORAGE"] = f"s3://local-{mark}/data"
    for bucket in (f"source-{mark}", f"local-{mark}"):
        s3_server.create_bucket(bucket)
    store = opened(found["IMAGENET_SOURCE"], s3_server)
    assert write_imagenet(store, IMAGES, CLASSES)[0] == IMAGES + 1
    return found


def opened(url: str, server: S3Server) -> Store:
    return open_store(url, endpoint=server.endpoint, region=server.region)


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str], prefect_server: Any
) -> tuple[Workplace, Finished]:
    """A workplace where the command was run once, and what it said."""
    place = Workplace(tmp_path_factory.mktemp("imagenet"), **variables)
    place.environment["PREFECT_API_URL"] = prefect_server.url
    done = place.run(*ASKED)
    del place.environment["PREFECT_API_URL"]
    assert done.status == 0, done.err
    return place, done


@pytest.fixture(scope="module")
def source(s3_server: S3Server, variables: dict[str, str]) -> Store:
    return opened(variables["IMAGENET_SOURCE"], s3_server)


def read_shard(path: Path) -> Iterator[dict[str, Any]]:
    """The samples of a shard as webdataset's reader groups them."""
    with path.open("rb") as stream:
        files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        yield from tariterators.group_by_keys(files)


def test_samples_and_labels_as_webdataset_reads_them(
    built: tuple[Workplace, Finished],
    source: Store,
    s3_server: S3Server,
    variables: dict[str, str],
    tmp_path: Path,
) -> None:
    storage = opened(variables["LARDER_STORAGE"], s3_server)
    document = built[1].document
    data = larder.open(
        f"{variables['LARDER_STORAGE']}/larder/imagenet",
        endpoint=s3_server.endpoint,
        region=s3_server.region,
    )
    assert (data.version, data.digest) == (document["version"], document["digest"])
    assert len(data.classes) == CLASSES
    text = bytes(source.get("val.txt")).decode()
    of_validation = dict(line.split() for line in text.splitlines())
    for split, count in (("train", IMAGES - VALIDATION), ("validation", VALIDATION)):
        seen = 0
        for url in data.shards(split):
            path = tmp_path / url.rpartition("/")[2]
            path.write_bytes(storage.get(url.removeprefix(f"{variables['LARDER_STORAGE']}/")))
            assert path.stat().st_size < 10_500_000
            for sample in read_shard(path):
                key = f"{sample['__key__']}.JPEG"
                name = key.rpartition("/")[2]
                label = data.classes[int(sample["cls"])]
                assert label == (
                    of_validation[name] if split == "validation" else key.split("/")[1]
                )
                if seen % 50 == 0:
                    assert sample["jpg"] == bytes(source.get(key))
                seen += 1
        assert seen == count


def test_everything_published_is_complete(
    built: tuple[Workplace, Finished], s3_server: S3Server, variables: dict[str, str]
) -> None:
    store = opened(f"{variables['LARDER_STORAGE']}/larder/imagenet", s3_server)
    assert list(check_all(store)) == [built[1].document["version"]]


def test_the_variable_of_aws_also_selects_the_server(
    built: tuple[Workplace, Finished], s3_server: S3Server
) -> None:
    place, first = built
    nothing = {"IMAGENET_SOURCE_ENDPOINT": "", "LARDER_STORAGE_ENDPOINT": ""}
    other = ("--plan", "--set", "shards.shuffle_seed=8")
    done = place.run(*ASKED, *other, **nothing, AWS_ENDPOINT_URL=s3_server.endpoint)
    assert done.status == 0, done.err
    plan = done.document
    assert (plan["status"], plan["objects"]) == ("planned", first.document["objects"])
    assert (plan["copied"]["count"], plan["cost"]["total_usd"]) == (0, 0)


def test_no_secret_is_shown(built: tuple[Workplace, Finished], s3_server: S3Server) -> None:
    place, done = built
    assert s3_server.secret_key not in done.out + done.err
    for path in place.folder.rglob("*"):
        assert not path.is_file() or s3_server.secret_key.encode() not in path.read_bytes()
