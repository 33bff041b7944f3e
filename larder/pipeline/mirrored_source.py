"""Whether a run copies the source's objects to the storage first. Pure."""

from __future__ import annotations

from larder.config.models import Cluster, Dataset

__all__ = ["mirrors"]


def mirrors(dataset: Dataset, cluster: Cluster) -> bool:
    """Whether a run of a dataset on a cluster has a mirror: ``mirror`` of the dataset file.

    Args:
        dataset: As configured.
        cluster: As configured.
    """
    del cluster
    return dataset.mirror is not False
