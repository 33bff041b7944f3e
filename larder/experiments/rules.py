"""Facts about a dataset and a cluster, and the rules that follow, each with its source. Pure.

Where the sources contradict each other, the sentence says what holds, and
docs/how-to/choosing-a-delivery.md why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from larder.config.models.cluster import Limits, Nodes
from larder.experiments.delivery import BY_LARDER, FIRST_WITH_LARDER, MAX_CHANNELS
from larder.units import format_bytes, format_count, format_seconds

GB = 1_000_000_000
IDEAL_BYTES = 150_000_000
"""Of a shard."""
INDEX_BYTES = 200
"""Of a sample, in the indexes beside shards: more than most have."""
DOWNLOADS_AT_ONCE = 8
"""Objects of a download that are under way together, with Larder; SageMaker does not say."""

_PREPARE = "Determined: Prepare Data"
_SKYPLANE = "Skyplane: Faster Training Data Loading"
_SAGEMAKER = "Amazon SageMaker: Access Training Data"
_API = "Amazon SageMaker: API reference, CreateTrainingJob"
SOURCES = {
    "L1": f"{_SKYPLANE}; {_PREPARE}",
    "L2": _SKYPLANE,
    "L3": f"derived from prices; {_SKYPLANE}",
    "D1": f"{_PREPARE}; the code of Determined for the size",
    "D2": f"{_PREPARE}; Determined: Custom Environments",
    **dict.fromkeys(("D3", "D4", "D5"), _PREPARE),
    "D6": "Determined: Data Layer",
    "D7": "the images that each release of Determined runs by default",
    **dict.fromkeys(("S1", "S2", "S3", "S5", "S6", "S7", "S11"), _SAGEMAKER),
    "S4": f"{_SAGEMAKER}; the fraction is Larder's",
    "S8": f"inferred from S2 and S5; {_SAGEMAKER}",
    **dict.fromkeys(("S9", "S10"), f"{_SAGEMAKER}; {_API}"),
    "K1": "Kubernetes: Persistent Volumes",
    "V1": "Larder: versions that omit samples",
    "V2": f"Larder: shards that are listed no longer; {_SAGEMAKER}",
}
"""Where each rule is from. L: location, D: Determined, S: SageMaker, K: Kubernetes, V: versions."""

Distance = Literal["beside", "away", "unknown"]
Effect = Literal["prefer", "refuse", "note"]

_FILE_SYSTEMS = {
    "efs": (
        "S1",
        "Amazon EFS",
        "If it is too slow, change its throughput mode, as its performance guide says, or deliver "
        "from a bucket.",
    ),
    "fsx": (
        "S7",
        "FSx for Lustre",
        "It is in a single Availability Zone, of which consumer.vpc has to name a subnet; what "
        "is in a linked bucket is loaded when first read, so the first epoch is as slow as that.",
    ),
}
"""Of each file system: its rule, its name, and what to look after."""

_MEASURE = """\
python -m timeit -n 1 -r 1 -s 'from larder import Shuffle, open' \
'for batch in open().loader("SPLIT", batch_size=256, shuffle=Shuffle("full")): pass'"""

_TOO_LONG = "too long beside training"
_IN_PLACE = "training reads it there."
_READS = {
    "determined": "each process that trains downloads it from there.",
    "croissant": "mlcroissant downloads it from there.",
}

_DOWNLOADERS = {"kubernetes": "An init container", "slurm": "A step of the job"}
_BARE_SHARDS = frozenset({"file", "fast_file", "pipe"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules know.

    Attributes:
        deliveries: Those that the consumer has.
        bytes, objects, samples: Of the shards that the version lists.
        target_bytes: Size of a shard that the dataset file asks for.
        omitted: Samples in these shards that the version omits.
        unlisted: Whether beside these shards there are others, which the version does not list.
        cache_bytes: Size of the cache; None if there is none.
        access, epochs, trials, training_seconds, context_bytes: As in the dataset file.
        storage, source: ``aws``, ``gcp`` or ``server`` for a bucket, ``file`` for a directory.
        from_source: How far the storage is from the source, and to_nodes, how far the nodes are
            from the storage.
        source_usd_per_gb: Price of a GB (10^9 bytes) from the source to the nodes; None if it is
            not known. usd_per_gb is that from the storage, usd_per_request that of reading an
            object there.
        file_systems: What the storage is in, if it is a directory: ``efs``, ``fsx``, ``claim``.
        prefixes: How many prefixes the shards have, one for each split of each segment.
        split_objects, prefix_objects: How many shards the split, and the prefix, with the fewest
            has; None if that is not known.
        only: Deliveries that have what the cluster file asks of them; all if it is empty.
        sharded: Whether each node gets a part of the shards.
        slots: How many processes train together by Determined's template; None if it does not say.
        own_image: Whether it names an image that may have Python 3.10.
        old_image: Whether it names an image of Determined with Python 3.9 or older.
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
    sharded: bool = False
    slots: int | None = None
    own_image: bool = False
    old_image: bool = False
    nodes: Nodes = field(default_factory=Nodes)

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
        """Containers that start: one on each node, for each trial."""
        return self.trials * self.nodes.count

    @property
    def reads(self) -> float:
        """How often training reads the dataset."""
        return self.epochs * self.starts

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
        """Whether a node keeps what it has downloaded from trial to trial."""
        return self.nodes.downloads is not None

    @property
    def copy_bytes(self) -> int:
        """What a copy of the version has: its caches, too."""
        return self.bytes + (self.cache_bytes or 0)

    @property
    def download_bytes(self) -> int:
        """A copy, or what a hook without Larder copies: the shards."""
        return self.bytes if self.without_larder else self.copy_bytes

    @property
    def node_objects(self) -> float:
        return self.objects * self.share

    def channel_objects(self, delivery: str) -> int:
        """The shards of the channel with the fewest."""
        fewest = self.prefix_objects if delivery == "fast_file" else self.split_objects
        return self.objects if fewest is None else fewest

    def fits(self, size_bytes: float) -> bool | None:
        """Whether it fits the disk of a node; None if the size of that is not known."""
        disk_bytes = self.nodes.disk_bytes
        return None if disk_bytes is None else size_bytes <= disk_bytes

    def seconds(self, size_bytes: float, requests: float) -> float:
        nodes = self.nodes
        return size_bytes / nodes.bytes_per_second + requests * nodes.request_seconds

    def download_seconds(self, size_bytes: float) -> float:
        """Of several objects at once: waiting for some goes on while others arrive."""
        waiting = self.node_objects / DOWNLOADS_AT_ONCE
        return max(self.seconds(size_bytes, 0), self.seconds(0, waiting))


@dataclass(frozen=True, slots=True)
class Fired:
    """A rule that says something about a delivery; of all of them if ``delivery`` is empty."""

    effect: Effect
    delivery: str
    rule: str
    sentence: str

    @property
    def source(self) -> str:
        return SOURCES[self.rule]


def fired_rules(facts: Facts, limits: Limits) -> Iterator[Fired]:
    """What holds for all deliveries, then for each; the first preference counts."""
    yield from _location(facts)
    yield from _version(facts)
    if facts.consumer == "sagemaker":
        yield from _sagemaker(facts, limits)
        return
    yield from _context(facts, limits)
    yield from _mounts(facts)
    yield from _from_bucket(facts, limits)
    yield from _caches(facts)
    if facts.without_larder:
        image = "the template's image" if facts.old_image else "the default image of that release"
        text = f"Larder needs Python 3.10, and {image} has 3.9 or older: "
        text += "the template's own" if facts.own_image else "an environment.image of the template"
        text += " has to have both."
        for name in BY_LARDER:
            yield Fired("note" if facts.own_image else "refuse", name, "D7", text)
        text = "Its hook does without Larder: it copies the shards, and compares their digests."
        yield Fired("note", "download", "D7", text)


def _location(facts: Facts) -> Iterator[Fired]:
    if facts.from_source == "away":
        text = "The source is far away: preparing copies it once, to be read beside the nodes."
        yield Fired("note", "", "L1", text)
        if facts.source_usd_per_gb:
            once, reads = facts.source_usd_per_gb * facts.bytes / GB, facts.reads
            text = f"To copy costs {once:,.2f} USD once; to read the source {reads:g} times would"
            yield Fired("note", "", "L3", f"{text} cost {once * reads:,.2f} USD.")
    if facts.in_bucket and facts.to_nodes == "away":
        text = "The nodes are far from the storage: reading is slower, and charged every time."
        yield Fired("note", "", "L1", text)
    elif facts.in_bucket and facts.to_nodes == "beside":
        text = "The nodes are in the region of the storage, where reading is fast and free."
        yield Fired("note", "", "L2", text)
    elif facts.in_bucket:
        text = "nodes.region does not say where the nodes are: elsewhere, reading is charged."
        yield Fired("note", "", "L2", text)


def _version(facts: Facts) -> Iterator[Fired]:
    """SageMaker hands over bare shards, and Croissant describes them; Larder can read others."""
    describes = facts.consumer == "croissant" or facts.without_larder
    if facts.omitted and facts.consumer != "sagemaker" and not describes:
        text = "The shards contain samples that the version omits, so they are not named here: read"
        yield Fired("note", "", "V1", f"{text} with larder.open, or from the cache.")
        return
    for name in facts.deliveries:
        if facts.omitted and (name in _BARE_SHARDS or describes):
            text = "The shards contain samples that the version omits: run larder compact."
            yield Fired("refuse", name, "V1", text)
        elif facts.unlisted and name == "fast_file":
            text = "It takes prefixes, and theirs have other shards too: run larder compact."
            yield Fired("refuse", name, "V2", text)
        elif facts.prefixes >= MAX_CHANNELS and name == "fast_file":
            text = "It takes a channel for each split of each segment, which are more than a job"
            yield Fired("refuse", name, "V2", f"{text} can have: run larder compact.")
        if facts.only and name not in facts.only:
            text = "It lacks what consumer.sharded, shuffle_seed, record_io or augmented asks for."
            yield Fired("refuse", name, "S9", text)


def _context(facts: Facts, limits: Limits) -> Iterator[Fired]:
    """Files are counted as base64, rounded up to three bytes, and without compression."""
    indexes = 2 * facts.objects + INDEX_BYTES * facts.samples
    together = facts.copy_bytes + indexes + (facts.context_bytes or 0)
    limit = f"{limits.context_bytes:,} bytes, the limit (96 MB in the guide)"
    if together > limits.context_bytes:
        text = f"Code and data together, about {together:,} bytes, exceed {limit}."
        yield Fired("refuse", "inline", "D1", text)
    elif facts.context_bytes is None:
        text = f"The data is below {limit}; experiment.context_bytes does not say how much code is."
        yield Fired("note", "inline", "D1", text)
    else:
        text = f"Code and data together, about {together:,} bytes, are within {limit}."
        yield Fired("prefer", "inline", "D1", text)


def _mounts(facts: Facts) -> Iterator[Fired]:
    claimed = "claim" in facts.file_systems and not facts.in_bucket
    if claimed:
        text = "The data is on a persistent volume: containers see it through its claim."
        yield Fired("prefer", "volume", "K1", text)
    else:
        text = "The cluster file names no claim of a persistent volume with the storage."
        yield Fired("refuse", "volume", "K1", text)
    if facts.in_bucket:
        text = "The storage is a bucket, not a file system of the nodes."
        yield Fired("refuse", "bind_mount", "D3", text)
    elif claimed and facts.consumer in ("kubernetes", "kubeflow"):
        text = "The mount of the storage has a claim, which is for the delivery volume."
        yield Fired("refuse", "bind_mount", "K1", text)
    else:
        text = "The data is on a file system of the nodes: "
        text += "containers see it through a bind mount." if facts.in_containers else _IN_PLACE
        yield Fired("prefer", "bind_mount", "D3", text)
        machine = "agent" if facts.consumer == "determined" else "node"
        text = f"It has to be mounted at the same path on every {machine}."
        yield Fired("note", "bind_mount", "D3", text)


def _from_bucket(facts: Facts, limits: Limits) -> Iterator[Fired]:
    """Download it first, or read it as training goes."""
    if not facts.in_bucket:
        text = "The storage is a directory, not a bucket."
        for name, rule in {"download": "D2", "bucket": "D4", "stream": "D5"}.items():
            yield Fired("refuse", name, rule, text)
        return
    size_bytes = facts.download_bytes
    size, seconds = format_bytes(size_bytes), facts.download_seconds(size_bytes)
    doubt = _doubt(facts, limits, size_bytes)
    if facts.fits(size_bytes) is False:
        text = f"{size} do not fit the disk of a node."
        yield Fired("refuse", "download", "D2", text)
    if facts.consumer == "slurm" and not facts.kept:
        text = "A node of Slurm has no directory for a download: set nodes.downloads."
        yield Fired("refuse", "download", "D2", text)
    if facts.fits(facts.bytes) is False:
        yield Fired("prefer", "stream", "D5", "The shards do not fit the disk of a node.")
    elif facts.fits(facts.bytes) is None and facts.bytes > limits.large_bytes:
        text = f"nodes.disk_bytes does not say that {format_bytes(facts.bytes)} fit a node's disk."
        yield Fired("prefer", "stream", "D5", text)
    elif facts.epochs < 1:
        text = "A trial ends before it has read everything: streaming moves less."
        yield Fired("prefer", "stream", "D5", text)
    elif doubt == _TOO_LONG:
        text = "To download takes too long beside training: streaming starts at once."
        yield Fired("prefer", "stream", "D5", text)
    else:
        text = "Training starts at once and needs no disk, but every epoch reads the bucket."
        yield Fired("note", "stream", "D5", text)
    text = f"{facts.downloader} downloads {size} on each node, in about {format_seconds(seconds)}"
    start = "container" if facts.in_containers else "job"
    text += ", once for all trials" if facts.kept else f", each time that a {start} starts"
    effect: Effect = "note" if doubt else "prefer"
    yield Fired(effect, "download", "D2", f"{text}: {doubt or 'little beside training'}.")
    reads = _READS.get(facts.consumer, _IN_PLACE)
    yield Fired("prefer", "bucket", "D4", f"The data is in the cluster's own bucket: {reads}")
    if facts.consumer != "determined":
        return
    processes = facts.nodes.count * facts.nodes.ranks
    if facts.slots and facts.slots != processes:
        text = (
            f"The template has {format_count(facts.slots, 'slot')}, but nodes.count x nodes.ranks"
        )
        text += f" is {processes}, for which bytes and disk are counted: correct one of them."
        yield Fired("note", "bucket", "D4", text)
    if facts.fits(facts.bytes * facts.nodes.ranks) is False:
        text = "The shards do not fit the disk of a node"
        text += f", {facts.nodes.ranks} times." if facts.nodes.ranks > 1 else "."
        yield Fired("refuse", "bucket", "D4", text)


def _doubt(facts: Facts, limits: Limits, size_bytes: float) -> str:
    """Why a download is not known to be short beside training; empty if it is."""
    fits = facts.fits(size_bytes)
    if fits is False:
        return "it does not fit"
    # SageMaker's volume has the size that is needed; what could be submitted with code fits any.
    if fits is None and facts.consumer != "sagemaker" and size_bytes > limits.context_bytes:
        return "nodes.disk_bytes does not say that it fits"
    if facts.epochs < 1:
        return "a trial ends before it has read everything"
    if facts.training_seconds is None:
        return "experiment.training_seconds does not say how long training takes"
    trials = facts.trials if facts.kept else 1
    most = limits.download_fraction * trials * facts.training_seconds
    return "" if facts.download_seconds(size_bytes) <= most else _TOO_LONG


def _caches(facts: Facts) -> Iterator[Fired]:
    if facts.cache_bytes is None:
        yield Fired("refuse", "cache", "D6", "The version has no cache: set cache to build one.")
    elif facts.in_bucket and facts.fits(facts.cache_bytes) is False:
        yield Fired("refuse", "cache", "D6", "The cache does not fit the disk of a node.")
    else:
        text = "Larder's cache, by dataset and version, takes the place of the data layer."
        yield Fired("note", "cache", "D6", text)
    if facts.without_larder and facts.release > (0, 19, 9):
        text = "Determined ignores data_layer since release 0.19.10, and Larder does not run there."
        yield Fired("refuse", "data_layer", "D6", text)
    else:
        text = "For a function: the first trial builds a cache that later ones use."
        yield Fired("note", "data_layer", "D6", text)


def _sagemaker(facts: Facts, limits: Limits) -> Iterator[Fired]:
    if facts.storage != "aws" or facts.to_nodes == "away":
        text = "SageMaker reads buckets of S3 in its own region only."
        for name in ("file", "fast_file", "pipe"):
            yield Fired("refuse", name, "L1", text)
    yield from _file_systems(facts)
    yield from _by_size(facts, limits)
    text = "One process reads each pipe, in order; FastFile has largely replaced it."
    yield Fired("refuse" if facts.access == "random" else "note", "pipe", "S9", text)
    if facts.nodes.count > 1 and facts.in_bucket:
        for name in facts.deliveries if facts.sharded else ():
            if facts.channel_objects(name) < facts.nodes.count:
                yield Fired("refuse", name, "S10", _divided(facts, name))
        yield Fired("note", "", "S10", _divided(facts, "file"))


def _divided(facts: Facts, delivery: str) -> str:
    objects, nodes = facts.channel_objects(delivery), facts.nodes.count
    can = "cannot" if objects < nodes else "can"
    shards = format_count(objects, "shard")
    return f"ShardedByS3Key {can} divide the {shards} of a channel among {nodes} nodes."


def _file_systems(facts: Facts) -> Iterator[Fired]:
    for name, (rule, noun, advice) in _FILE_SYSTEMS.items():
        if name in facts.file_systems and not facts.in_bucket:
            yield Fired("prefer", name, rule, f"The data is on {noun} already; jobs need a VPC.")
            yield Fired("note", name, rule, advice)
            continue
        text = f"The storage is not in a file system of {noun} that consumer.file_system names."
        if facts.source == "file":
            text += f" If the source is on {noun} already, put storage.url there, too."
        yield Fired("refuse", name, rule, text)


def _by_size(facts: Facts, limits: Limits) -> Iterator[Fired]:
    small, large = facts.bytes < limits.small_bytes, facts.bytes > limits.large_bytes
    can_be_larger = facts.objects > 1 and facts.target_bytes < IDEAL_BYTES
    if facts.object_bytes < limits.object_bytes and can_be_larger:
        text = f"Shards of {format_bytes(facts.object_bytes)} are small: set shards.bytes: 150 MB."
        for name in ("file", "fast_file"):
            yield Fired("note", name, "S8" if large else "S2", text)
    size = format_bytes(facts.node_bytes)
    if facts.fits(facts.node_bytes) is False:
        yield Fired("refuse", "file", "S11", f"{size} do not fit the volume.")
    doubt = _doubt(facts, limits, facts.node_bytes)
    if small and (facts.training_seconds is None or not doubt) and facts.epochs >= 1:
        text = f"{size} are little: File mode downloads them, and any order reads fast."
        yield Fired("prefer", "file", "S3", text)
    elif small:
        text = f"{size} are little, but to download them does not pay: {doubt}."
        yield Fired("note", "file", "S3", text)
    else:
        doubt = "that is large" if large else doubt
        seconds = format_seconds(facts.download_seconds(facts.node_bytes))
        text = f"File mode downloads {size} first, in about {seconds}"
        text += f": {doubt or 'little beside training'}."
        yield Fired("note" if doubt else "prefer", "file", "S4", text)
    if facts.access == "random":
        text = "FastFile reads at random too, but slowly; FSx for Lustre is made for that."
        yield Fired("prefer", "fast_file", "S6", text)
        text = "A model that computes long may still be kept busy: compare its epoch with what this"
        yield Fired("note", "fast_file", "S6", f"{text} measures in a job: {_MEASURE}.")
    else:
        text = "FastFile starts without a download and reads large files in order."
        yield Fired("prefer", "fast_file", "S5", text)
