"""Versions and clusters, as the tests of consumers need them."""

from typing import Any

from larder.config.models.cluster import Cluster
from larder.config.urls import parse_url
from larder.experiments.delivery import Advice, DeliveredSplit, DeliveredVersion, VersionContents

VERSION = "0123456789abcdef0123456789abcdef"
SHARDS = "segments/5eed/shards"


def version_of(
    url: str, delivery: str, dataset: str = "d", *, shards: bool = True, replaces: bool = False
) -> DeliveredVersion:
    root = f"{url.rstrip('/')}/larder/{dataset}/"
    advice = Advice(delivery, f"By {delivery}.", shards)
    where = f"{root}versions/{VERSION}"
    return DeliveredVersion(dataset, VERSION, where, root, url, advice, replaces)


def cluster_of(kind: str, url: str, nodes: dict[str, Any] | None = None, **storage: Any) -> Cluster:
    described = {"nodes": nodes or {}, "consumer": {"kind": kind}}
    return Cluster.model_validate({"name": "k", "storage": {"url": url, **storage}, **described})


def delivered(url: str, delivery: str = "") -> tuple[DeliveredVersion, VersionContents]:
    """A version of the digits; it is delivered as its storage suggests, unless that is said."""
    where = parse_url(url)
    delivery = delivery or ("bind_mount" if where.is_directory else "bucket")
    splits = {
        "validation": DeliveredSplit(
            360, 1, 1_000, (f"{SHARDS}/validation/digits-validation-{{000000..000000}}.tar",)
        ),
        "train": DeliveredSplit(
            1437, 4, 4_000, (f"{SHARDS}/train/digits-train-{{000000..000003}}.tar",)
        ),
    }
    files = {name: (f"segments/5eed/caches/c0de/{name}-0123456789abcdef.mdb",) for name in splits}
    contents = VersionContents("fedcba98" * 8, splits, 10, files)
    return version_of(url, delivery, "digits"), contents


def cluster(url: str, *mounts: tuple[str, str], **more: Any) -> Cluster:
    found = [{"host_path": host, "container_path": container} for host, container in mounts]
    storage = {"url": url, **more.pop("storage", {})}
    return Cluster.model_validate(
        {"name": "here", "storage": storage, "nodes": {"mounts": found}, **more}
    )
