"""A rough estimate of the duration of a run, from the amount of work. Pure."""

from __future__ import annotations

from typing import NamedTuple

from larder.config.models import Cluster, Dataset
from larder.config.urls import parse_url
from larder.pipeline.results import Totals

__all__ = ["estimate_seconds"]


class Pace(NamedTuple):
    """How much one machine does per second."""

    bytes: float
    copied_objects: float
    packed_objects: float


DIRECTORIES = Pace(150e6, 3_000, 10_000)
BUCKETS = Pace(100e6, 1_000, 2_000)
CHECKED_BYTES = 60e6
DECODED_BYTES = 25e6
"""The last two: bytes of JPEGs per second that are decoded to be checked, and to be kept as arrays.

Measured on two cores, from directory to directory and between buckets of a server on the same
machine, with files of 1 kB to 110 kB: runs took 0.6 to 1.5 times the estimate, and up to three
times on a busy machine.
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
        objects: The objects that become parts of samples.
        images: Those that are images.
        copied: Those that are copied to the mirror.
        shards: The shards that are written.
    """
    directories = all(
        parse_url(url).is_directory for url in (dataset.source.url, cluster.storage.url)
    )
    pace = DIRECTORIES if directories else BUCKETS
    cache = dataset.cache
    seconds = (copied.bytes + shards.bytes * (2 if cache else 1)) / pace.bytes
    seconds += copied.count / pace.copied_objects + objects.count / pace.packed_objects
    if dataset.validate_ == "decode":
        seconds += images.bytes / CHECKED_BYTES
    if cache and cache.records == "decoded":
        seconds += images.bytes / DECODED_BYTES
    return seconds
