"""What a run asks of images, from its dataset and cluster."""

from __future__ import annotations

from larder.config.models import Cluster, Dataset
from larder.limits import decoding_budget
from larder.shards.images import ImageRules

__all__ = ["image_rules", "read_share_bytes"]


def image_rules(dataset: Dataset, cluster: Cluster) -> ImageRules:
    """The rules for the images of a dataset.

    Decoded images take half of ``copy.memory_bytes``, over all batches of a process.
    """
    return ImageRules(
        max_pixels=dataset.images.max_pixels,
        forms=dataset.cache is not None and dataset.cache.records == "decoded",
        budget=decoding_budget(max(1, cluster.copy_.memory // 2)),
    )


def read_share_bytes(dataset: Dataset, cluster: Cluster) -> int:
    """The bytes that all batches may read ahead: what decoded images leave."""
    return cluster.copy_.memory // (2 if dataset.validate_ == "decode" else 1)
