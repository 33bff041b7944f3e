from typing import Any

import pytest
from pydantic import ValidationError

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.errors import ConfigError
from larder.experiments.advice import Choices
from larder.experiments.delivery import Advice
from larder.jobs.results import Totals
from larder.pipeline.delivery_facts import choices, chosen, delivery_document
from tests.support.errors import larder_error

DELIVERIES = [
    ("auto", "/mnt/data", "bind_mount"),
    ("auto", "s3://bucket/prefix/", "bucket"),
    ("bind_mount", "/mnt/data", "bind_mount"),
    ("bucket", "s3://bucket", "bucket"),
]


def models(
    storage: dict[str, Any], experiment: dict[str, Any], source: dict[str, Any], **cluster: Any
) -> tuple[Dataset, Cluster]:
    return (
        Dataset.model_validate({"name": "digits", "source": source, "experiment": experiment}),
        Cluster.model_validate({"name": "here", "storage": storage, **cluster}),
    )


SHARDS = Totals(20, 2_000_000_000)


def offered(
    dataset: Dataset,
    cluster: Cluster,
    shards: Totals = SHARDS,
    samples: int = 100,
    omitted: int = 0,
    **template: Any,
) -> Choices:
    sizes = {"samples": samples, "omitted": omitted, "unlisted": False, "cache_bytes": None}
    return choices(dataset, cluster, template, shards, **sizes)


def decide(requested: str, url: str, omitted: int = 0) -> Advice:
    dataset, cluster = models({"url": url}, {"delivery": requested}, {"url": "/source"})
    return chosen(dataset, cluster, offered(dataset, cluster, omitted=omitted))


@pytest.mark.parametrize(("requested", "storage_url", "delivery"), DELIVERIES)
def test_it_follows_from_the_storage_and_shards_with_omitted_samples_are_not_named(
    requested, storage_url, delivery
):
    for omitted in (0, 1):
        advice = decide(requested, storage_url, omitted)
        assert (advice.delivery, advice.shards) == (delivery, not omitted)
        assert ("the version omits" in advice.sentence) == omitted


def test_impossible_choices_are_refused():
    impossible = {"bind_mount": "s3://bucket/", "bucket": "file:///mnt/data/", "fast_file": "/mnt"}
    for requested, url in impossible.items():
        with larder_error("config.invalid_value") as caught:
            decide(requested, url)
        assert caught.value.where in (url, "experiment.delivery")


WEST = {"region": "us-west-2"}


@pytest.mark.parametrize(
    ("source", "nodes", "rules", "dollars"),
    [
        ({"url": "s3://far/", "region": "us-east-1"}, WEST, ["L1", "L3", "L2"], 0.0),
        ({"url": "s3://near/", "region": "us-west-2"}, WEST, ["L2"], 0.0),
        ({"url": "/source"}, WEST | {"provider": "aws"}, ["L2"], 0.0),
        ({"url": "/source"}, {"region": "eu-west-1"}, ["L1"], 4 * 100 * 0.02),
        ({"url": "/source"}, {"provider": "gcp", "region": "us-west1"}, ["L1"], 4 * 100 * 0.09),
        ({"url": "/source"}, {"provider": "on-premises"}, ["L1"], 4 * 100 * 0.09),
        ({"url": "/source"}, {}, ["L2"], None),
        ({"url": "/source"}, {"provider": "aws"}, ["L2"], None),
    ],
)
def test_regions_and_prices_follow_from_both_files(source, nodes, rules, dollars):
    dataset, cluster = models(
        {"url": "s3://storage/", "region": "us-west-2"},
        {"epochs": 90, "trials": 4},
        source,
        nodes=nodes,
    )
    shards = Totals(1_000, 100_000_000_000)
    document = delivery_document(dataset, cluster, offered(dataset, cluster, shards, 10**6))
    assert [note["rule"] for note in document["notes"]] == rules
    (bucket,) = (each for each in document["options"] if each["delivery"] == "bucket")
    requests = 4 * 1_000 * 0.0000004
    if dollars is None:
        assert bucket["usd"] is None
        assert "nodes.region does not say" in document["notes"][0]["sentence"]
    else:
        assert bucket["usd"] == pytest.approx(dollars + requests, abs=1e-4)
    assert bucket["moved_bytes"] == 4 * shards.bytes


@pytest.mark.parametrize(
    ("image", "possible"),
    [
        ("team/image:1", True),
        ({"cuda": "team/image:1"}, True),
        ("determinedai/environments:x", False),
    ],
)
def test_the_template_says_how_many_ranks_there_are_and_whose_image(image, possible):
    template = {"resources": {"slots_per_trial": 8}, "environment": {"image": image}}
    release = {"kind": "determined", "release": "0.25.1"}
    dataset, cluster = models({"url": "s3://storage/"}, {}, {"url": "/source"}, consumer=release)
    options = delivery_document(dataset, cluster, offered(dataset, cluster, **template))["options"]
    (bucket,) = (each for each in options if each["delivery"] == "bucket")
    assert bucket["possible"] is possible
    assert any("The template has 8 slots" in rule["sentence"] for rule in bucket["rules"])


SAGEMAKER = {"kind": "sagemaker"}
EFS = {"type": "efs", "id": "fs-01234567", "directory": "/data"}
CLAIM = {"host_path": "/srv", "container_path": "/data", "claim": "team-data"}


DISK = {"disk_bytes": 10**9}
BUCKET = "s3://storage/"


@pytest.mark.parametrize(
    ("url", "consumer", "nodes", "first"),
    [
        (BUCKET, SAGEMAKER, {}, "file"),
        (BUCKET, SAGEMAKER, DISK, "fast_file"),
        (BUCKET, {**SAGEMAKER, "record_io": True}, {}, "pipe"),
        (BUCKET, {**SAGEMAKER, "shuffle_seed": 7}, DISK, "pipe"),
        (BUCKET, {**SAGEMAKER, "sharded": True}, {**DISK, "count": 4}, "file"),
        ("/srv/efs", {**SAGEMAKER, "file_system": EFS}, {}, "efs"),
        ("/srv/data", {}, {"mounts": [CLAIM]}, "volume"),
        ("/elsewhere", {}, {"mounts": [CLAIM]}, "bind_mount"),
        ("/srv/data", {"kind": "kubernetes"}, {"mounts": [CLAIM]}, "volume"),
        (BUCKET, {"kind": "kubeflow"}, {}, "stream"),
        ("/srv/data", {"kind": "json"}, {}, "bind_mount"),
    ],
)
def test_the_cluster_file_says_what_there_is(url, consumer, nodes, first):
    cluster = {"nodes": nodes, **({"consumer": consumer} if consumer else {})}
    dataset, target = models({"url": url}, {}, {"url": "/source"}, **cluster)
    assert chosen(dataset, target, offered(dataset, target)).delivery == first


@pytest.mark.parametrize(
    "asked",
    [{"sharded": True}, {"shuffle_seed": 7}, {"record_io": True}, {"augmented": True}],
    ids=str,
)
def test_a_file_system_does_not_ignore_what_is_asked_of_channels(asked):
    consumer = {**SAGEMAKER, "file_system": EFS, **asked}
    dataset, target = models({"url": "/srv/efs"}, {}, {"url": "/source"}, consumer=consumer)
    with pytest.raises(ConfigError, match="S9"):
        chosen(dataset, target, offered(dataset, target))


@pytest.mark.parametrize("kind", ["determined", "kubernetes"])
def test_a_seed_of_zero_is_of_sagemaker_too(kind):
    with pytest.raises(ValidationError, match="does not apply"):
        models({"url": "/x"}, {}, {"url": "/y"}, consumer={"kind": kind, "shuffle_seed": 0})


def test_code_and_data_are_submitted_together_if_both_are_small():
    dataset, cluster = models({"url": "s3://b-1/"}, {"context_bytes": "1 MB"}, {"url": "/source"})
    for size_bytes, first in ((98_594_716, "inline"), (98_594_721, "bucket")):
        found = offered(dataset, cluster, Totals(1, size_bytes))
        assert chosen(dataset, cluster, found).delivery == first


@pytest.mark.parametrize(
    ("of_server", "of_nodes", "expected"),
    [
        ("eu-central-1", "eu-central-1", "What its server charges is not known"),
        ("eu-central-1", "us-east-1", "Put the storage beside the nodes first"),
        (None, "us-east-1", "How near the storage's server is"),
        ("eu-central-1", None, "How near the storage's server is"),
    ],
)
@pytest.mark.parametrize("provider", ["aws", "gcp", None])
def test_where_a_server_is_its_region_says(of_server, of_nodes, expected, provider):
    storage = {"url": "s3://storage/", "endpoint": "https://s3.example.com", "region": of_server}
    nodes = {"provider": provider, "region": of_nodes}
    dataset, target = models(storage, {}, {"url": "/source"}, nodes=nodes)
    (note,) = delivery_document(dataset, target, offered(dataset, target))["notes"]
    assert expected in note["sentence"]


GB = 10**9


@pytest.mark.parametrize("kind", ["determined", "kubernetes", "kubeflow", "slurm", "json"])
@pytest.mark.parametrize("requested", ["auto", "stream", "bucket"])
@pytest.mark.parametrize("disk_bytes", [99 * GB, 100 * GB, None])
def test_a_cache_is_refused_where_the_disk_is_too_small(kind, requested, disk_bytes):
    cluster = {"consumer": {"kind": kind}, "nodes": {"disk_bytes": disk_bytes}}
    experiment = {"delivery": requested}
    dataset, target = models({"url": "s3://storage/"}, experiment, {"url": "/source"}, **cluster)
    sizes = {"samples": 10**6, "omitted": 0, "unlisted": False, "cache_bytes": 100 * GB}
    offered = choices(dataset, target, {}, Totals(134, 20 * GB), **sizes)
    readers = [each for each in offered.options if each.delivery in ("stream", "bucket")]
    assert {each.disk_bytes for each in readers} == {100 * GB}
    if requested not in ("auto", *(each.delivery for each in readers)):
        return
    if disk_bytes == 99 * GB:
        with larder_error("config.invalid_value") as caught:
            chosen(dataset, target, offered)
        assert (
            "100 GB do not fit the disk of a node. To read the shards instead, set cache: null"
            in caught.value.message
        )
        assert "data_layer" not in caught.value.message
        return
    assert chosen(dataset, target, offered).delivery in ("stream", "bucket")


KINDS = ["determined", "kubernetes", "slurm"]
MOUNT = {"host_path": "/mnt", "container_path": "/data"}


@pytest.mark.parametrize(
    ("host", "container", "refusing"),
    [
        ("/nvme", "/nvme", []),
        ("/mnt/nvme", "/nvme", []),
        ("/mnt/teams", "/nvme", []),
        ("/mnt/team", "/nvme", KINDS),
        ("/mnt/team/copies/", "/nvme", KINDS),
        ("/mnt/x/..", "/nvme", KINDS),
        ("/nvme", "/data", ["determined", "kubernetes"]),
        ("/nvme", "/data/team/copies", ["determined", "kubernetes"]),
        ("/nvme", "/", ["determined", "kubernetes"]),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("requested", ["auto", "download"])
def test_a_copy_is_advised_beside_the_storage_alone(host, container, refusing, kind, requested):
    downloads = {"host_path": host, "container_path": container}
    nodes = {"disk_bytes": "1 TB", "mounts": [MOUNT], "downloads": downloads}
    cluster = {"consumer": {"kind": kind}, "nodes": nodes}
    experiment = {"delivery": requested, "epochs": 90}
    dataset, target = models({"url": "/mnt/team"}, experiment, {"url": "/source"}, **cluster)
    sizes = {"samples": 10**6, "omitted": 0, "unlisted": False, "cache_bytes": None}
    offered = choices(dataset, target, {}, Totals(134, 20 * 10**9), **sizes)
    if kind not in refusing:
        assert chosen(dataset, target, offered).delivery == "download"
    elif requested == "auto":
        assert chosen(dataset, target, offered).delivery == "bind_mount"
    else:
        with larder_error("config.invalid_value") as caught:
            chosen(dataset, target, offered)
        assert "one inside the other" in caught.value.message
