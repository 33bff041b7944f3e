"""A delivery whose loader would download a cache needs a disk that holds the cache."""

import pytest

from larder.jobs.results import Totals
from larder.pipeline.delivery_facts import choices, chosen
from tests.support.errors import larder_error
from tests.unit.pipeline.test_delivery import models

GB = 10**9


@pytest.mark.parametrize("kind", ["determined", "kubernetes", "kubeflow", "slurm", "json"])
@pytest.mark.parametrize("requested", ["auto", "stream", "bucket"])
@pytest.mark.parametrize("disk_bytes", [99 * GB, 100 * GB, None])
def test_it_is_refused_where_the_disk_is_too_small(kind, requested, disk_bytes):
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
