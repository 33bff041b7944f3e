"""ImageNet's official layout, from one bucket to another on a real S3 server."""

import uuid

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

IMAGES, VALIDATION, CLASSES = 300, 30, 10
SHARD_BYTES = 1_000_000
PREPARE = ("-m", "larder.cli.main", "prepare")
ASKED = ("--dataset", "imagenet", "--cluster", "aws-us-west-2", "--json")
ASKED += ("--set", f"shards.bytes={SHARD_BYTES}", "--set", "cluster.runner.batch_bytes=4 MB")
ASKED += ("--set", "mirror=true")
SIDES = ("IMAGENET_SOURCE", "LARDER_STORAGE")


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
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]
) -> tuple[Workplace, Finished]:
    """A workplace where the command was run once, and what it said."""
    place = Workplace(tmp_path_factory.mktemp("imagenet"), **variables)
    done = place.run(*ASKED, python=PREPARE)
    assert done.status == 0, done.err
    return place, done


def test_samples_and_labels_as_webdataset_reads_them(built, s3_server, variables, tmp_path):
    source, storage = (opened(variables[name], s3_server) for name in SIDES)
    root = f"{variables['LARDER_STORAGE']}/larder/imagenet"
    data = larder.open(root, endpoint=s3_server.endpoint, region=s3_server.region)
    document = built[1].document
    assert (data.version, data.digest) == (document["version"], document["digest"])
    assert list(check_all(opened(root, s3_server))) == [data.version]
    text = bytes(source.get("val.txt")).decode()
    of_validation = dict(line.split() for line in text.splitlines())
    for split, count in (("train", IMAGES - VALIDATION), ("validation", VALIDATION)):
        seen = 0
        for url in data.shards(split):
            path = tmp_path / url.rpartition("/")[2]
            path.write_bytes(storage.get(url.removeprefix(f"{variables['LARDER_STORAGE']}/")))
            assert path.stat().st_size < 1.2 * SHARD_BYTES
            with path.open("rb") as stream:
                files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
                for sample in tariterators.group_by_keys(files):
                    seen += 1
                    key = f"{sample['__key__']}.JPEG"
                    assert sample["jpg"] == bytes(source.get(key))
                    folder, name = key.split("/")[-2:]
                    label = data.classes[int(sample["cls"])]
                    assert label == (of_validation[name] if split == "validation" else folder)
        assert seen == count


def test_the_variable_of_aws_also_selects_the_server(built, s3_server):
    place, first = built
    nothing = {f"{name}_ENDPOINT": "" for name in SIDES}
    asked = (*ASKED, "--plan", "--set", "shards.shuffle_seed=8")
    done = place.run(*asked, python=PREPARE, **nothing, AWS_ENDPOINT_URL=s3_server.endpoint)
    assert done.status == 0, done.err
    plan = done.document
    assert (plan["status"], plan["objects"]) == ("planned", first.document["objects"])
    assert (plan["copied"]["count"], plan["cost"]["total_usd"]) == (0, 0)


def test_no_secret_is_shown(built, s3_server):
    place, done = built
    assert s3_server.secret_key not in done.out + done.err
    for path in place.folder.rglob("*"):
        assert not path.is_file() or s3_server.secret_key.encode() not in path.read_bytes()
