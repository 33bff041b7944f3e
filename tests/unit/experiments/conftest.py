from collections.abc import Callable
from typing import Any

import pytest

from larder.config.models.cluster import Cluster, Limits
from larder.config.urls import parse_url
from larder.experiments.advice import advise
from larder.experiments.delivery import Advice, DeliveredSplit, DeliveredVersion, VersionContents
from larder.experiments.facts import Facts

VERSION = "0123456789abcdef0123456789abcdef"
SHARDS = "segments/5eed/shards"


def make_version_info(
    storage_url: str, *, cache: bool = True, dataset: str = "digits", requested: str = "auto"
) -> tuple[DeliveredVersion, VersionContents]:
    storage = storage_url if storage_url.endswith("/") else f"{storage_url}/"
    root = f"{storage}larder/{dataset}/"
    splits = {
        "validation": DeliveredSplit(
            360, 1, 1_000, (f"{SHARDS}/validation/{dataset}-validation-{{000000..000000}}.tar",)
        ),
        "train": DeliveredSplit(
            1437, 4, 4_000, (f"{SHARDS}/train/{dataset}-train-{{000000..000003}}.tar",)
        ),
    }
    place = "file" if parse_url(storage_url).is_directory else "aws"
    facts = Facts("determined", ("bind_mount", "bucket"), 5_000, 5, storage=place)
    option = advise(facts, Limits()).choose(requested, where=storage_url)
    files = {name: (f"segments/5eed/caches/c0de/{name}-0123456789abcdef.mdb",) for name in splits}
    delivered = DeliveredVersion(
        dataset=dataset,
        version=VERSION,
        location=f"{root}versions/{VERSION}",
        root=root,
        storage_url=storage_url,
        delivery=Advice(option.delivery, option.deciding.sentence),
    )
    return delivered, VersionContents("fedcba98" * 8, splits, 10, files if cache else None)


def make_cluster(url: str, *mounts: tuple[str, str], **more: Any) -> Cluster:
    found = [{"host_path": host, "container_path": container} for host, container in mounts]
    return Cluster.model_validate(
        {
            "name": "here",
            "storage": {"url": url, **more.pop("storage", {})},
            "nodes": {"mounts": found},
            **more,
        }
    )


@pytest.fixture
def delivered() -> Callable[..., tuple[DeliveredVersion, VersionContents]]:
    return make_version_info


@pytest.fixture
def cluster() -> Callable[..., Cluster]:
    return make_cluster


@pytest.fixture
def template() -> dict[str, Any]:
    return {
        "entrypoint": "python3 train.py",
        "hyperparameters": {"global_batch_size": 32},
        "searcher": {"name": "single", "metric": "loss"},
    }
