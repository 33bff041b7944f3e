from typing import Any

import pytest

from larder.config.models import Cluster, Dataset
from larder.errors import ConfigError
from larder.experiments.delivery import Advice
from larder.jobs.results import Totals
from larder.pipeline.delivery import choices, chosen, delivery_document

DELIVERIES = [
    ("auto", "/mnt/data", "bind_mount"),
    ("auto", "file:///mnt/data/", "bind_mount"),
    ("auto", "s3://bucket/prefix/", "bucket"),
    ("auto", "gs://bucket/", "bucket"),
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


def decide(requested: str, url: str, *, omitted: int = 0) -> Advice:
    dataset, cluster = models({"url": url}, {"delivery": requested}, {"url": "/source"})
    shards = Totals(20, 2_000_000_000)
    offered = choices(
        dataset, cluster, shards, samples=100, omitted=omitted, unlisted=False, cache_bytes=None
    )
    return chosen(dataset, cluster, offered)


@pytest.mark.parametrize(("requested", "storage_url", "delivery"), DELIVERIES)
def test_it_follows_from_the_storage(requested, storage_url, delivery):
    advice = decide(requested, storage_url)
    assert (advice.delivery, advice.shards) == (delivery, True)


@pytest.mark.parametrize(
    ("requested", "storage_url"),
    [
        ("bind_mount", "s3://bucket/"),
        ("bucket", "file:///mnt/data/"),
        ("bucket", "/mnt/data"),
        ("fast_file", "/mnt/data"),
    ],
)
def test_impossible_choices_are_refused(requested, storage_url):
    with pytest.raises(ConfigError) as caught:
        decide(requested, storage_url)
    assert caught.value.code == "config.invalid_value"
    assert caught.value.where in (storage_url, "experiment.delivery")
    assert caught.value.hint


@pytest.mark.parametrize(("requested", "storage_url", "delivery"), DELIVERIES)
def test_shards_with_omitted_samples_are_not_named(requested, storage_url, delivery):
    advice = decide(requested, storage_url, omitted=1)
    assert (advice.delivery, advice.shards) == (delivery, False)
    assert "larder.open" in advice.sentence


@pytest.mark.parametrize(
    ("source", "nodes", "rules", "dollars"),
    [
        ({"url": "s3://far/", "region": "us-east-1"}, {}, ["L1", "L3", "L2"], 0.0),
        ({"url": "s3://near/", "region": "us-west-2"}, {}, ["L2"], 0.0),
        ({"url": "/source"}, {"region": "us-west-2"}, ["L2"], 0.0),
        ({"url": "/source"}, {"region": "eu-west-1"}, ["L1"], 4 * 100 * 0.02),
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
    offered = choices(
        dataset, cluster, shards, samples=10**6, omitted=0, unlisted=False, cache_bytes=None
    )
    document = delivery_document(dataset, cluster, offered)
    assert [note["rule"] for note in document["notes"]] == rules
    (bucket,) = (each for each in document["options"] if each["delivery"] == "bucket")
    requests = 2 * 4 * 1_000 * 0.0000004
    assert bucket["usd"] == pytest.approx(dollars + requests, abs=1e-4)
    assert bucket["moved_bytes"] == 4 * shards.bytes
