"""The facts that the advice on a delivery needs, for a published or a planned version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from larder.config.models.cluster import Cluster, Consumer
from larder.config.models.dataset import Dataset
from larder.config.patterns import count_braces
from larder.config.urls import parse_url
from larder.copy.prices import egress_usd_per_gb, estimate_cost
from larder.copy.site import Site, distance
from larder.experiments.advice import Choices, advise
from larder.experiments.consumers.determined.template import has_old_image, has_own_image, slots_of
from larder.experiments.consumers.registry import consumer_of
from larder.experiments.delivery import Advice
from larder.experiments.facts import Facts
from larder.experiments.rules import Fired
from larder.jobs.results import Totals
from larder.pipeline.settings import Settings
from larder.versions import layout
from larder.versions.documents import SegmentUse, VersionDocument


def choices(
    dataset: Dataset,
    cluster: Cluster,
    template: Mapping[str, Any],
    shards: Totals,
    *,
    samples: int,
    omitted: int,
    unlisted: bool,
    cache_bytes: int | None,
    patterns: Iterable[str] = (),
) -> Choices:
    """Advise on every delivery of the cluster's consumer, for shards in the cluster's storage."""
    experiment, consumer = dataset.experiment, cluster.consumer
    prefixes, splits = Counter[str](), Counter[str]()
    for pattern in patterns:
        prefix, count = pattern.rpartition("/")[0], count_braces(pattern)
        prefixes[prefix] += count
        splits[prefix.rpartition("/")[2]] += count
    source, storage = Site.of(dataset.source), Site.of(cluster.storage)
    nodes = _nodes(cluster, storage)
    of_one = estimate_cost(storage, nodes, size_bytes=0, objects=1, written=0)
    to_nodes, is_server = distance(storage, nodes), storage.provider == "server"
    if is_server and consumer.kind != "sagemaker":  # a server may be anywhere, also in a cloud
        is_known = storage.region and nodes.region
        is_same = storage.region == nodes.region
        to_nodes = "unknown" if not is_known else "beside" if is_same else "away"
    is_near = to_nodes == "beside" and cluster.nodes.provider == "on-premises"
    is_priced = is_near or not is_server
    facts = Facts(
        consumer=consumer.kind,
        deliveries=consumer_of(cluster).DELIVERIES,
        bytes=shards.bytes,
        objects=shards.count,
        samples=samples,
        target_bytes=dataset.shards.bytes,
        omitted=omitted,
        unlisted=unlisted,
        cache_bytes=cache_bytes,
        release=tuple(map(int, consumer.release.split("."))),
        access=experiment.access,
        epochs=experiment.epochs,
        trials=experiment.trials,
        training_seconds=experiment.training_seconds,
        context_bytes=experiment.context_bytes,
        storage=storage.provider,
        source=source.provider,
        from_source="beside" if source.provider == "file" else distance(source, storage),
        to_nodes=to_nodes,
        source_usd_per_gb=egress_usd_per_gb(source, nodes),
        usd_per_gb=egress_usd_per_gb(storage, nodes) if is_priced else None,
        usd_per_request=of_one.requests_usd,
        file_systems=_file_systems(cluster),
        prefixes=len(prefixes),
        split_objects=min(splits.values(), default=None),
        prefix_objects=min(prefixes.values(), default=None),
        only=_only(consumer),
        apart=_apart(cluster),
        sharded=consumer.sharded,
        slots=slots_of(template),
        own_image=has_own_image(template),
        old_image=has_old_image(template),
        nodes=cluster.nodes,
    )
    return advise(facts, consumer.limits)


def _nodes(cluster: Cluster, storage: Site) -> Site:
    """Return the place of the nodes by the cluster file; SageMaker's are on AWS."""
    provider, is_sagemaker = cluster.nodes.provider, cluster.consumer.kind == "sagemaker"
    region = cluster.nodes.region.lower() if cluster.nodes.region else None
    if is_sagemaker and storage.provider != "file":
        provider = "aws"
    if provider == "on-premises" and storage.priced:
        return Site("file")
    if provider in ("aws", "gcp") and provider != storage.provider:
        return Site(provider, region)
    if region is None and is_sagemaker:
        return storage
    return storage._replace(region=region, bucket="")


def _file_systems(cluster: Cluster) -> frozenset[str]:
    path = parse_url(cluster.storage.url).rest
    claims = [
        "claim"
        for mount in cluster.nodes.mounts
        if mount.claim and _is_inside(path, mount.host_path)
    ]
    file_system = cluster.consumer.file_system
    return frozenset([*claims, file_system.type] if file_system else claims)


def _apart(cluster: Cluster) -> bool:
    """Return whether nodes.downloads and the storage are apart, on nodes and in containers."""
    downloads, storage = cluster.nodes.downloads, normpath(parse_url(cluster.storage.url).rest)
    if downloads is None:
        return True
    pairs = [(storage, downloads.host_path)]
    if cluster.consumer.kind != "slurm":  # its step copies on the node
        mounts = [mount for mount in cluster.nodes.mounts if _is_inside(storage, mount.host_path)]
        seen = [mount.container_path for mount in mounts] or [storage]
        pairs += [(path, downloads.container_path) for path in seen]
    return not any(_is_inside(one, other) or _is_inside(other, one) for one, other in pairs)


def _is_inside(path: str, directory: str) -> bool:
    return PurePosixPath(normpath(path)).is_relative_to(normpath(directory))


def _only(consumer: Consumer) -> frozenset[str]:
    """Return the modes of SageMaker with the requested features; empty if none is requested."""
    if consumer.record_io or consumer.augmented:
        return frozenset({"pipe"})
    if consumer.shuffle_seed is not None:
        return frozenset({"file", "pipe"})
    return frozenset({"file", "fast_file", "pipe"} if consumer.sharded else ())


def version_choices(settings: Settings, version: VersionDocument) -> Choices:
    splits = version.splits.values()
    omitted = sum(each.omitted for each in splits)
    cached = [*chain.from_iterable(map(version.cache_files, version.splits))]
    return choices(
        settings.dataset,
        settings.cluster,
        settings.template,
        Totals(sum(each.shards for each in splits), sum(each.bytes for each in splits)),
        samples=sum(each.samples for each in splits),
        omitted=omitted,
        unlisted=version.omitted > omitted,
        cache_bytes=sum(each.bytes for each in cached) if cached else None,
        patterns=chain.from_iterable(each.patterns for each in splits),
    )


def split_prefixes(
    split: str, patterns: Sequence[str], segments: Iterable[SegmentUse]
) -> tuple[str, ...]:
    """Return the prefix of the split's shards in each segment; empty if any sample is omitted."""
    prefixes = []
    for use in segments:
        prefix = layout.shard_key(use.id, split, "")
        if any(pattern.startswith(prefix) for pattern in patterns):
            if split in use.omitted:
                return ()
            prefixes.append(prefix)
    return tuple(prefixes)


def chosen(dataset: Dataset, cluster: Cluster, offered: Choices) -> Advice:
    """Return the delivery of a config; ConfigError if the requested delivery is not possible."""
    option = offered.choose(dataset.experiment.delivery, where=cluster.storage.url)
    first = [
        note.sentence for note in offered.notes if note.rule == "V1" or note.effect == "prefer"
    ]
    sentence = " ".join([*first, option.deciding.sentence])
    shards = all(note.rule != "V1" for note in offered.notes)
    return Advice(option.delivery, sentence, shards)


def delivery_document(dataset: Dataset, cluster: Cluster, offered: Choices) -> dict[str, Any]:
    advice = chosen(dataset, cluster, offered)
    return {
        "kind": advice.delivery,
        "reason": advice.sentence,
        "options": [
            {
                "delivery": option.delivery,
                "possible": option.possible,
                "startup_seconds": round(option.startup_seconds, 1),
                "moved_bytes": round(option.moved_bytes),
                "usd": None if option.usd is None else round(option.usd, 4),
                "disk_bytes": round(option.disk_bytes),
                "rules": list(map(_rule, option.fired)),
            }
            for option in offered.options
        ],
        "notes": list(map(_rule, offered.notes)),
    }


def _rule(fired: Fired) -> dict[str, str]:
    return {
        "rule": fired.rule,
        "effect": fired.effect,
        "sentence": fired.sentence,
        "source": fired.source,
    }
