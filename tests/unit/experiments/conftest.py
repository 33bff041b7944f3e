from collections.abc import Callable
from typing import Any

import pytest

from larder.config.models.cluster import Cluster
from larder.experiments.delivery import DeliveredVersion, VersionContents
from tests.unit.experiments.made import make_cluster, make_version


@pytest.fixture
def delivered() -> Callable[..., tuple[DeliveredVersion, VersionContents]]:
    return make_version


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
