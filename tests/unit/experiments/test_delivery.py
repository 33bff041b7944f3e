import pytest

from larder.errors import ConfigError
from larder.experiments.delivery import choose

BOTH = ("bind_mount", "bucket")
DELIVERIES = [
    ("auto", "/mnt/data", "bind_mount"),
    ("auto", "file:///mnt/data/", "bind_mount"),
    ("auto", "s3://bucket/prefix/", "bucket"),
    ("auto", "gs://bucket/", "bucket"),
    ("bind_mount", "/mnt/data", "bind_mount"),
    ("bucket", "S3://bucket", "bucket"),
]


@pytest.mark.parametrize(("requested", "storage_url", "delivery"), DELIVERIES)
def test_it_follows_from_the_storage(requested, storage_url, delivery):
    advice = choose(requested, storage_url, deliveries=BOTH)
    assert (advice.delivery, advice.shards) == (delivery, True)


@pytest.mark.parametrize(
    ("requested", "storage_url"),
    [("bind_mount", "s3://bucket/"), ("bucket", "file:///mnt/data/"), ("bucket", "/mnt/data")],
)
def test_impossible_choices_are_refused(requested, storage_url):
    with pytest.raises(ConfigError) as caught:
        choose(requested, storage_url, deliveries=BOTH)
    assert caught.value.code == "config.invalid_value"
    assert caught.value.where == storage_url
    assert caught.value.hint


@pytest.mark.parametrize(("requested", "storage_url", "delivery"), DELIVERIES)
def test_shards_with_omitted_samples_are_not_named(requested, storage_url, delivery):
    advice = choose(requested, storage_url, deliveries=BOTH, omitted=1)
    assert (advice.delivery, advice.shards) == (delivery, False)
    assert "larder.open" in advice.sentence


def test_a_delivery_that_the_consumer_lacks_is_refused_with_those_that_it_has():
    with pytest.raises(ConfigError) as caught:
        choose("efs", "/mnt/data", deliveries=BOTH)
    assert (caught.value.code, caught.value.where) == (
        "config.invalid_value",
        "experiment.delivery",
    )
    assert all(delivery in caught.value.hint for delivery in BOTH)
