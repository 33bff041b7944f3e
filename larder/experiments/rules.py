"""Rules that follow from facts about a dataset and a cluster, each with its source. Pure.

If sources contradict each other, the sentence states the correct fact, and
docs/how-to/choosing-a-delivery.md gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from larder.config.models.cluster import Limits
from larder.experiments.delivery import BY_LARDER, MAX_CHANNELS
from larder.experiments.facts import GAP_BYTES, GB, Facts, traffic
from larder.units import format_bytes, format_count, format_seconds

IDEAL_BYTES = 150_000_000
"""Ideal size of a shard."""
INDEX_BYTES = 200
"""Bytes of a sample in the indexes beside shards: more than most samples have."""

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
    "K2": "Kubernetes: Pod Security Standards",
    "V1": "Larder: versions that omit samples",
    "V2": f"Larder: shards that are listed no longer; {_SAGEMAKER}",
    "V3": "Larder: its loader reads the cache of a version",
}
"""Sources of the rules. L: location, D: Determined, S: SageMaker, K: Kubernetes, V: versions."""

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
"""Rule, name and advice for each file system."""

_MEASURE = """\
python -m timeit -n 1 -r 1 -s 'from larder import Shuffle, open' \
'for batch in open().loader("SPLIT", batch_size=256, shuffle=Shuffle("full")): pass'"""

_TOO_LONG = "too long beside training"
_NOT_ALL = "a trial ends before it has read everything"
_IN_PLACE = "training reads it there."
_READS = {
    "determined": "larder.open().copy_to(DIRECTORY) copies it once for all processes of a node.",
    "croissant": "mlcroissant downloads it from there.",
}
_MACHINES = {"aws": "AWS", "gcp": "Google Cloud"}

_BARE_SHARDS = frozenset({"file", "fast_file", "pipe"})


class Fired(NamedTuple):
    """A statement of a rule about a delivery; about all deliveries if ``delivery`` is empty."""

    effect: Effect
    delivery: str
    rule: str
    sentence: str

    @property
    def source(self) -> str:
        return SOURCES[self.rule]


def fired_rules(facts: Facts, limits: Limits) -> Iterator[Fired]:
    """Yield rules for all deliveries, then for single deliveries; the first preference counts."""
    yield from _location(facts)
    yield from _version(facts)
    if facts.consumer == "sagemaker":
        yield from _sagemaker(facts, limits)
        return
    yield from _context(facts, limits)
    if not facts.in_bucket:
        yield from _copied(facts, limits)
    yield from _mounts(facts)
    yield from _from_bucket(facts, limits)
    yield from _host_paths(facts)
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
    if facts.in_bucket and facts.to_nodes == "away":
        yield Fired("prefer", "", "L1", _storage_beside_nodes(facts))
    if facts.from_source == "away":
        text = "The source is far from the storage, to which preparing copies it once."
        yield Fired("note", "", "L1", text)
        if facts.source_usd_per_gb:
            once, reads = facts.source_usd_per_gb * facts.bytes / GB, facts.reads
            text = f"To copy costs {once:,.2f} USD once; to read the source {reads:g} times would"
            yield Fired("note", "", "L3", f"{text} cost {once * reads:,.2f} USD.")
    if facts.in_bucket and facts.to_nodes == "beside":
        text = "The nodes are in the region of the storage, where reading is fast"
        text += (
            ". What its server charges is not known." if facts.usd_per_gb is None else " and free."
        )
        yield Fired("note", "", "L2", text)
    elif facts.in_bucket and facts.to_nodes == "unknown" and facts.storage == "server":
        text = "How near the storage's server is, and what it charges, is not known. If it is near,"
        text += " set storage.region to its region, and nodes.region to the same."
        yield Fired("note", "", "L2", text)
    elif facts.in_bucket and facts.to_nodes == "unknown":
        text = "nodes.region does not say where the nodes are: elsewhere, reading is charged."
        yield Fired("note", "", "L2", text)


def _storage_beside_nodes(facts: Facts) -> str:
    """Return Skyplane's own advice, with the price of following it."""
    nodes = facts.nodes
    provider = "aws" if facts.consumer == "sagemaker" else nodes.provider or ""
    place = "a directory or a server" if provider == "on-premises" else "a bucket"
    region = " ".join(filter(None, (_MACHINES.get(provider), nodes.region)))
    place += f" in {region}" if region else " there"
    text = f"Put the storage beside the nodes first: set storage.url to {place}, and copy"
    text += " or prepare the dataset to it. Until then, every reading is slower"
    if facts.usd_per_gb:
        copy_usd = facts.usd_per_gb * facts.copy_bytes / GB
        return f"{text}, and charged; a copy costs {copy_usd:,.2f} USD once."
    return f"{text}, and may be charged."


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


def _copied(facts: Facts, limits: Limits) -> Iterator[Fired]:
    """Copy a directory to a disk of each node, which pays where the file system is slow."""
    if facts.without_larder or not facts.kept:
        text = "The storage is a directory, not a bucket: to copy it to a disk of each node"
        text += " takes an image with Larder." if facts.kept else ", set nodes.downloads."
        yield Fired("refuse", "download", "D2", text)
        return
    if not facts.apart:
        text = "nodes.downloads and the storage directory are one inside the other, on the nodes or"
        text += " in containers: set it to a disk and a path of its own."
        yield Fired("refuse", "download", "D2", text)
        return
    size_bytes = facts.copy_bytes
    copy_seconds = facts.download_seconds(size_bytes, facts.objects)
    mounted, copied = traffic(facts, "bind_mount"), traffic(facts, "download")
    read_seconds = facts.seconds(mounted.moved_bytes / facts.nodes.count, 0)
    seconds = format_seconds(copy_seconds)
    text = f"{facts.downloader} copies {format_bytes(size_bytes)} to each node, in about {seconds}"
    text += ", once for all trials"
    training_seconds = facts.trials * (facts.training_seconds or 0)
    if facts.fits(size_bytes) is False:
        text = f"{format_bytes(size_bytes)} do not fit the disk of a node."
        yield Fired("refuse", "download", "D2", text)
    elif copied.moved_bytes >= mounted.moved_bytes:
        text += ": to read the data in place moves no more."
        yield Fired("note", "download", "D2", text)
    elif facts.fits(size_bytes) is None:
        text += ": nodes.disk_bytes does not say that it fits."
        yield Fired("note", "download", "D2", text)
    else:
        is_short = copy_seconds <= limits.download_fraction * max(training_seconds, read_seconds)
        text += f". To read it in place takes a node {format_seconds(read_seconds)} at least."
        yield Fired("prefer" if is_short else "note", "download", "D2", text)


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
        for name, rule in {"bucket": "D4", "stream": "D5"}.items():
            yield Fired("refuse", name, rule, text)
        return
    size_bytes = facts.download_bytes
    seconds = facts.download_seconds(size_bytes, facts.objects)
    size, doubt = format_bytes(size_bytes), _doubt(facts, limits, size_bytes)
    if facts.fits(size_bytes) is False:
        text = f"{size} do not fit the disk of a node."
        yield Fired("refuse", "download", "D2", text)
    if facts.consumer == "slurm" and not facts.kept:
        text = "A node of Slurm has no directory for a download: set nodes.downloads."
        yield Fired("refuse", "download", "D2", text)
    if facts.downloads_cache("stream"):
        yield from _cache_first(facts)
    else:
        yield from _streams(facts, limits, doubt)
    text = f"{facts.downloader} downloads {size} on each node, in about {format_seconds(seconds)}"
    start = "container" if facts.in_containers else "job"
    text += ", once for all trials" if facts.kept else f", each time that a {start} starts"
    effect: Effect = "note" if doubt else "prefer"
    yield Fired(effect, "download", "D2", f"{text}: {doubt or 'little beside training'}.")
    reads = _READS.get(facts.consumer, _IN_PLACE)
    if facts.downloads_cache("bucket"):
        reads = "larder.open().loader() downloads its cache once for all processes of a node."
    yield Fired("prefer", "bucket", "D4", f"The data is in the cluster's own bucket: {reads}")
    if facts.consumer == "determined":
        yield from _ranks(facts)


def _streams(facts: Facts, limits: Limits, doubt: str) -> Iterator[Fired]:
    """Compare streaming with a download, about which there may be a doubt."""
    if facts.fits(facts.bytes) is False:
        yield Fired("prefer", "stream", "D5", "The shards do not fit the disk of a node.")
    elif facts.fits(facts.bytes) is None and facts.bytes > limits.large_bytes:
        text = f"nodes.disk_bytes does not say that {format_bytes(facts.bytes)} fit a node's disk."
        yield Fired("prefer", "stream", "D5", text)
    elif doubt == _NOT_ALL:
        text = "A trial ends before it has read everything: streaming moves less."
        yield Fired("prefer", "stream", "D5", text)
    elif doubt == _TOO_LONG:
        text = "To download takes too long beside training: streaming starts at once."
        yield Fired("prefer", "stream", "D5", text)
    else:
        text = "Training starts at once and needs no disk, but every epoch reads the bucket."
        yield Fired("note", "stream", "D5", text)
    ranks = facts.nodes.count * facts.nodes.ranks
    sample_bytes = facts.bytes // max(facts.samples, 1)
    if ranks > 1 and 0 < sample_bytes < GAP_BYTES:
        text = f"Samples of {format_bytes(sample_bytes)} are small: ranks also read the gaps"
        text += f" between theirs, up to {ranks} times the bytes that are counted."
        yield Fired("note", "stream", "D5", text)


def _cache_first(facts: Facts) -> Iterator[Fired]:
    """Describe the download before a loader's first batch, which the disk of a node has to hold."""
    size_bytes = facts.cache_bytes or 0
    fits, seconds = facts.fits(size_bytes), format_seconds(facts.download_seconds(size_bytes, 1))
    text = "larder.open().loader() reads the version's cache, which each node downloads first:"
    text += f" {format_bytes(size_bytes)}"
    text += " do not fit the disk of a node" if fits is False else f", in about {seconds}"
    text += ", if the disk holds it" if fits is None else ""
    text += ". To read the shards instead, set cache: null and prepare."
    for name in ("stream", "bucket"):
        yield Fired("refuse" if fits is False else "note", name, "V3", text)


def _ranks(facts: Facts) -> Iterator[Fired]:
    """Count the downloads of each process of a node by the code of Determined's guide."""
    ranks, processes = facts.nodes.ranks, facts.nodes.count * facts.nodes.ranks
    if facts.slots and facts.slots != processes:
        slots = format_count(facts.slots, "slot")
        text = f"The template has {slots}, but nodes.count x nodes.ranks is {processes}:"
        yield Fired("note", "bucket", "D4", f"{text} correct one of them.")
    if ranks > 1:
        text = "By the code of Determined's guide, each process downloads for itself:"
        text += f" {format_bytes(facts.bytes * ranks)} on each node."
        yield Fired("note", "bucket", "D4", text)
    if facts.fits(facts.bytes) is False and not facts.downloads_cache("bucket"):
        yield Fired("refuse", "bucket", "D4", "The shards do not fit the disk of a node.")


def _doubt(facts: Facts, limits: Limits, size_bytes: float) -> str:
    """Why a download is not known to be short beside training; empty if it is."""
    fits, of_sagemaker = facts.fits(size_bytes), facts.consumer == "sagemaker"
    if fits is False:
        return "it does not fit"
    # SageMaker's volume has the needed size; files small enough to submit with code fit any disk.
    if fits is None and not of_sagemaker and size_bytes > limits.context_bytes:
        return "nodes.disk_bytes does not say that it fits"
    download, stream = ("file", "fast_file") if of_sagemaker else ("download", "stream")
    is_less = traffic(facts, stream).moved_bytes < traffic(facts, download).moved_bytes
    if facts.epochs < 1 and is_less:
        return _NOT_ALL
    if facts.training_seconds is None:
        return "experiment.training_seconds does not say how long training takes"
    trials = facts.trials if facts.kept else 1
    most = limits.download_fraction * trials * facts.training_seconds
    seconds = facts.download_seconds(size_bytes, facts.objects * facts.share)
    return "" if seconds <= most else _TOO_LONG


def _host_paths(facts: Facts) -> Iterator[Fired]:
    """Say where a cluster may refuse the pods: with hostPath, for a mount or for downloads."""
    if facts.consumer not in ("kubernetes", "kubeflow") and "claim" not in facts.file_systems:
        return
    text = "a hostPath, which Pod Security refuses at its levels baseline and restricted: there,"
    if not facts.in_bucket:
        ways = f"It is {text} put the data on a claim (nodes.mounts[].claim)."
        yield Fired("note", "bind_mount", "K2", ways)
    if facts.kept:
        for name in ("download", "stream", "bucket", "cache") if facts.in_bucket else ("download",):
            yield Fired("note", name, "K2", f"nodes.downloads is {text} leave it out.")


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
        text = "SageMaker reads buckets of S3 in its own region only: set storage.url to one there."
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
    text = f"ShardedByS3Key {can} divide the {shards} of a channel among {nodes} nodes"
    return f"{text}: set shards.count_min: {nodes}." if objects < nodes else f"{text}."


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
    if small and (facts.training_seconds is None or not doubt) and doubt != _NOT_ALL:
        text = f"{size} are little: File mode downloads them, and any order reads fast."
        yield Fired("prefer", "file", "S3", text)
    elif small:
        text = f"{size} are little, but to download them does not pay: {doubt}."
        yield Fired("note", "file", "S3", text)
    else:
        doubt = "that is large" if large else doubt
        objects = facts.objects * facts.share
        seconds = format_seconds(facts.download_seconds(facts.node_bytes, objects))
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
