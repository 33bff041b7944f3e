"""How long a run will take, roughly, from how much there is to do. Pure."""

from __future__ import annotations

from typing import NamedTuple

from larder.config.models import Cluster, Dataset
from larder.config.urls import parse_url
from larder.pipeline.results import Totals

__all__ = ["estimate_seconds"]


class Pace(NamedTuple):
    """What one machine does in a second."""

    bytes: float
    copied_objects: float
    packed_objects: float


DIRECTORIES = Pace(150e6, 3_000, 10_000)
BUCKETS = Pace(100e6, 1_000, 2_000)
CHECKED_BYTES = 60e6
DECODED_BYTES = 25e6
"""The last two: bytes of JPEGs a second that are decoded to check them, and to be kept as arrays.

Measured on two cores, from directory to directory and between buckets of one server beside it,
with files of 1 kB to 110 kB: runs took 0.6 to 1.5 times the estimate, and up to three times on a
machine that was busy with other work.
"""


def estimate_seconds(
    dataset: Dataset,
    cluster: Cluster,
    *,
    objects: Totals,
    images: Totals,
    copied: Totals,
    shards: Totals,
) -> float:
    """The seconds that one machine takes to copy, pack and cache.

    Args:
        dataset: As configured.
        cluster: As configured.
        objects: What becomes parts of samples.
        images: Those of them that are images.
        copied: What is copied to the mirror.
        shards: What is written.
    """
    directories = all(
        parse_url(url).is_directory for url in (dataset.source.url, cluster.storage.url)
    )
    pace = DIRECTORIES if directories else BUCKETS
    cache = dataset.cache
    seconds = (copied.bytes + shards.bytes * (2 if cache else 1)) / pace.bytes
    seconds += copied.count / pace.copied_objects + objects.count / pace.packed_objects
    if dataset.validation == "decode":
        seconds += images.bytes / CHECKED_BYTES
    if cache and cache.records == "decoded":
        seconds += images.bytes / DECODED_BYTES
    return seconds
