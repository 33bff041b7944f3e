"""Facts about a dataset and a cluster, and the traffic of each delivery. Pure."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from larder.config.models.cluster import Nodes
from larder.experiments.delivery import BY_LARDER, FIRST_WITH_LARDER

GB = 1_000_000_000
DOWNLOADS_AT_ONCE = 8
"""Objects of a download that are under way together, with Larder; SageMaker does not say."""
OPENING_REQUESTS = 6
"""Requests of a reader before its first sample: tag, version, indexes, part of a shard."""

SPAN_BYTES = 8 << 20
"""Bytes of a shard that `larder.readers` reads with one request."""
GAP_BYTES = 64 << 10
"""Largest gap between two samples across which `larder.readers` reads both with one request."""

_SHARDS_ALONE = frozenset({"file", "fast_file", "pipe", "data_layer"})
"""Deliveries without the caches of a version."""
_IN_PLACE = frozenset({"bind_mount", "volume", "efs", "fsx"})
_DOWNLOADERS = {"kubernetes": "An init container", "slurm": "A step of the job"}

Distance = Literal["beside", "away", "unknown"]


class Facts(NamedTuple):
    """Facts that the rules know.

    Attributes:
        deliveries: The deliveries of the consumer.
        bytes, objects, samples: Totals of the shards that the version lists.
        target_bytes: Size of a shard that the dataset file asks for.
        omitted: Samples in these shards that the version omits.
        unlisted: Whether other shards exist beside these, which the version does not list.
        cache_bytes: Size of the cache; None without a cache.
        access, epochs, trials, training_seconds, context_bytes: Fields of the dataset file.
        storage, source: ``aws``, ``gcp`` or ``server`` for a bucket, ``file`` for a directory.
        from_source, to_nodes: Distance of the storage from the source, and of the nodes from the
            storage.
        source_usd_per_gb, usd_per_gb: Price of a GB (10^9 bytes) from the source, and from the
            storage, to the nodes; None if not known.
        usd_per_request: Price of reading an object of the storage.
        file_systems: File systems of a storage directory: ``efs``, ``fsx``, ``claim``.
        prefixes: Number of prefixes of the shards, one for each split of each segment.
        split_objects, prefix_objects: Smallest number of shards of a split, and of a prefix; None
            if not known.
        only: Deliveries that support the options of the cluster file; all if empty.
        apart: Whether nodes.downloads is apart from a storage directory: neither is in the other.
        sharded: Whether each node gets a part of the shards.
        slots: Number of processes that train together by Determined's template; None if not known.
        own_image: Whether the template names an image that may have Python 3.10.
        old_image: Whether the template names an image of Determined with Python 3.9 or older.
    """

    consumer: str
    deliveries: tuple[str, ...]
    bytes: int
    objects: int
    samples: int = 0
    target_bytes: int = 0
    omitted: int = 0
    unlisted: bool = False
    cache_bytes: int | None = None
    release: tuple[int, ...] = (0, 38)
    access: Literal["sequential", "random"] = "sequential"
    epochs: float = 1
    trials: int = 1
    training_seconds: float | None = None
    context_bytes: int | None = None
    storage: str = "aws"
    source: str = "aws"
    from_source: Distance = "beside"
    to_nodes: Distance = "beside"
    source_usd_per_gb: float | None = 0.0
    usd_per_gb: float | None = 0.0
    usd_per_request: float = 0.0
    file_systems: frozenset[str] = frozenset()
    prefixes: int = 0
    split_objects: int | None = None
    prefix_objects: int | None = None
    only: frozenset[str] = frozenset()
    apart: bool = True
    sharded: bool = False
    slots: int | None = None
    own_image: bool = False
    old_image: bool = False
    nodes: Nodes = Nodes.model_construct()

    @property
    def in_bucket(self) -> bool:
        return self.storage != "file"

    @property
    def in_containers(self) -> bool:
        """Whether the consumer starts the containers that train."""
        return self.consumer in ("determined", "kubernetes", "kubeflow")

    @property
    def without_larder(self) -> bool:
        """Whether Larder does not run in the image of the template, or of the release."""
        is_old = self.old_image or self.release < FIRST_WITH_LARDER
        return self.consumer == "determined" and is_old

    @property
    def downloader(self) -> str:
        if self.without_larder:
            image = "the template's image" if self.old_image else "the default image"
            return f"A startup hook without Larder, as {image} has Python 3.9 or older,"
        return _DOWNLOADERS.get(self.consumer, "A startup hook")

    @property
    def uncertain(self) -> frozenset[str]:
        """Deliveries that may not work in the user's own image: they have to be named."""
        return BY_LARDER if self.without_larder and self.own_image else frozenset()

    @property
    def starts(self) -> int:
        """Number of containers that start: one on each node, for each trial."""
        return self.trials * self.nodes.count

    @property
    def reads(self) -> float:
        """Epochs of all trials: the ranks of an epoch, on all nodes, read each sample once."""
        return self.epochs * self.trials

    @property
    def object_bytes(self) -> float:
        """The mean size of a shard."""
        return self.bytes / self.objects if self.objects else 0.0

    @property
    def share(self) -> float:
        """The part of the dataset that a node reads."""
        return 1 / self.nodes.count if self.sharded else 1

    @property
    def node_bytes(self) -> float:
        return self.bytes * self.share

    @property
    def kept(self) -> bool:
        """Whether a node keeps downloads from trial to trial."""
        return self.nodes.downloads is not None

    @property
    def copy_bytes(self) -> int:
        """Bytes of a copy of the version, with its caches."""
        return self.bytes + (self.cache_bytes or 0)

    @property
    def download_bytes(self) -> int:
        """Bytes of a copy; a hook without Larder copies the shards alone."""
        return self.bytes if self.without_larder else self.copy_bytes

    def reads_cache(self, delivery: str) -> bool:
        """Return whether training reads the version's cache, as `loader()` prefers."""
        if delivery in _SHARDS_ALONE or self.consumer == "croissant":
            return False
        has_larder = delivery in BY_LARDER or not self.without_larder
        return self.cache_bytes is not None and has_larder

    def downloads_cache(self, delivery: str) -> bool:
        """Return whether readers download the whole cache first, as they do from a bucket."""
        is_remote = self.in_bucket and delivery in ("stream", "bucket", "cache")
        return is_remote and self.reads_cache(delivery)

    def channel_objects(self, delivery: str) -> int:
        """Return the smallest number of shards of a channel."""
        fewest = self.prefix_objects if delivery == "fast_file" else self.split_objects
        return self.objects if fewest is None else fewest

    def fits(self, size_bytes: float) -> bool | None:
        """Whether it fits the disk of a node; None if the size of that is not known."""
        disk_bytes = self.nodes.disk_bytes
        return None if disk_bytes is None else size_bytes <= disk_bytes

    def seconds(self, size_bytes: float, requests: float) -> float:
        nodes = self.nodes
        return size_bytes / nodes.bytes_per_second + requests * nodes.request_seconds

    def download_seconds(self, size_bytes: float, objects: float) -> float:
        """Return the time of a download, in which some objects arrive while others are awaited."""
        return max(self.seconds(size_bytes, 0), self.seconds(0, objects / DOWNLOADS_AT_ONCE))


class Traffic(NamedTuple):
    """Bytes and requests of a delivery, which a test compares with the traffic of a server.

    Attributes:
        startup_seconds: Time until a node has its first sample.
        moved_bytes: Bytes that all nodes read, for all epochs and trials.
        requests: Objects or ranges that all nodes ask for.
        disk_bytes: Bytes on the disk of a node.
    """

    startup_seconds: float
    moved_bytes: float
    requests: float
    disk_bytes: float = 0.0


def traffic(facts: Facts, delivery: str) -> Traffic:
    opening = facts.seconds(0, OPENING_REQUESTS)
    if delivery == "inline":  # unpacked twice in every container
        unpacked_bytes = 2.0 * facts.copy_bytes
        startup = opening + facts.seconds(unpacked_bytes, 0)
        return Traffic(startup, facts.copy_bytes * facts.starts, 0, unpacked_bytes)
    size_bytes, objects = _downloaded(facts, delivery)
    if objects:
        is_kept = delivery in ("download", "data_layer") or facts.downloads_cache(delivery)
        times = facts.nodes.count if facts.kept and is_kept else facts.starts
        startup = opening + facts.download_seconds(size_bytes, objects)
        return Traffic(startup, size_bytes * times, objects * times, size_bytes)
    size_bytes = (facts.cache_bytes or 0) if facts.reads_cache(delivery) else facts.bytes
    # Every node reads the whole of a pipe, or its share; other readers divide an epoch.
    reads = facts.reads * (facts.nodes.count * facts.share if delivery == "pipe" else 1)
    if delivery in _IN_PLACE or not facts.in_bucket:
        return Traffic(opening, size_bytes * reads, 0)
    objects, first_bytes, listings = facts.objects, facts.object_bytes, 0.0
    if facts.access == "random":
        objects, first_bytes = facts.samples, facts.bytes / max(facts.samples, 1)
    elif delivery not in _SHARDS_ALONE:
        objects *= max(1, math.ceil(facts.object_bytes / SPAN_BYTES))
    if delivery == "fast_file":
        listings = facts.objects / 1000
    startup = opening + facts.seconds(first_bytes, listings)
    return Traffic(startup, size_bytes * reads, objects * reads)


def _downloaded(facts: Facts, delivery: str) -> tuple[float, float]:
    """Return the bytes and objects that a node downloads before it reads; 0 without a download."""
    if delivery == "download":
        return facts.download_bytes, max(facts.objects, 1)
    if facts.downloads_cache(delivery):
        return facts.cache_bytes or 0, 1
    is_whole = delivery == "bucket" and facts.in_bucket
    is_whole = is_whole and facts.consumer in ("determined", "croissant")
    if is_whole or delivery in ("file", "data_layer"):
        return facts.bytes * facts.share, max(facts.objects * facts.share, 1)
    return 0, 0
