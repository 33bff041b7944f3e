"""A copy on the nodes needs a directory that is neither in the storage directory nor around it."""

import pytest

from larder.jobs.results import Totals
from larder.pipeline.delivery_facts import choices, chosen
from tests.support.errors import larder_error
from tests.unit.pipeline.test_delivery import models

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
