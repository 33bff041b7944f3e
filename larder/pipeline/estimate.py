"""A rough estimate of the duration of a run, from the amount of work. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from larder.config.models import Cluster, Copy, Dataset
from larder.config.urls import parse_url
from larder.pipeline.measured import Measured
from larder.pipeline.results import Totals


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
    measured: Measured | None = None,
) -> float:
    """The seconds that one machine takes to copy, pack and cache.

    Args:
        dataset: As configured.
        cluster: As configured.
        objects: The objects that become parts of samples.
        images: Those that are images.
        copied: Those that are copied to the mirror.
        shards: The shards that are written.
        measured: How fast an earlier run copied, if that is known.
    """
    pace = _pace(dataset, cluster)
    cache = dataset.cache
    seconds = _copy_seconds(cluster.copy_, pace, copied, measured)
    seconds += shards.bytes * (2 if cache else 1) / pace.bytes
    seconds += objects.count / pace.packed_objects
    if dataset.validate_ == "decode" or dataset.shards.images:
        seconds += images.bytes / CHECKED_BYTES * (3 if dataset.shards.images else 1)
    if cache and cache.records == "decoded":
        seconds += images.bytes / DECODED_BYTES
    return seconds


def copy_basis(copy: Copy, measured: Measured | None) -> Literal["given", "measured", "estimated"]:
    """Where the pace of copies is from: ``copy.bytes_per_second``, an earlier run, or neither."""
    if copy.bytes_per_second is not None:
        return "given"
    return "measured" if measured else "estimated"


def _pace(dataset: Dataset, cluster: Cluster) -> Pace:
    urls = (dataset.source.url, cluster.storage.url)
    return DIRECTORIES if all(parse_url(url).is_directory for url in urls) else BUCKETS


def _copy_seconds(copy: Copy, pace: Pace, copied: Totals, measured: Measured | None) -> float:
    """Of the copies: with the given bandwidth, as an earlier run took, or roughly.

    What an earlier run took is compared with the rough estimate for it, so that it counts for other
    sizes of objects as well.
    """
    rate = copy.bytes_per_second or pace.bytes
    seconds = copied.bytes / rate + copied.count / pace.copied_objects
    if copy.bytes_per_second is None and measured is not None:
        rough = measured.bytes / pace.bytes + measured.objects / pace.copied_objects
        seconds *= measured.seconds / rough
    if copy.max_bytes_per_second is not None:
        seconds = max(seconds, copied.bytes / copy.max_bytes_per_second)
    return seconds
