"""SageMaker training jobs: a template, which is the request without its data, with channels.

Every split is a channel, which a container sees as ``/opt/ml/input/data/SPLIT``. The channel
``larder`` has documents and indexes, with which `larder.open` finds samples in the shards.

A channel is a prefix if the split has a prefix of its own, else a manifest, which is written into
the bucket, next to the version. In fast file mode there are no manifests: a split of several
segments has a channel for each segment, ``train``, ``train.2`` and so on.
"""

from __future__ import annotations

import json
import math
import posixpath
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larder.config.models.cluster import Cluster
from larder.config.patterns import expand_braces
from larder.errors import ConfigError
from larder.experiments.consumers.sagemaker.request_rules import check_request, downloaded_bytes
from larder.experiments.consumers.template_conflicts import Conflicts, is_stale, job_name, section
from larder.experiments.delivery import (
    LOCATION,
    MAX_CHANNELS,
    ConfigFile,
    ConfigRequest,
    DeliveredVersion,
    VersionContents,
)
from larder.experiments.rules import INDEX_BYTES
from larder.manifest.digest import sha256_hex

DELIVERIES: tuple[str, ...] = ("file", "fast_file", "pipe", "efs", "fsx")
TEMPLATE: str | None = "sagemaker/default.yaml"

CHANNEL = "larder"
"""The channel with the documents and indexes of the version."""

_MODES = {"file": "File", "fast_file": "FastFile", "pipe": "Pipe"}
_FILE_SYSTEMS = {"efs": "EFS", "fsx": "FSxLustre"}
_GIB = 1024**3
_SCRATCH_GIB = 10
"""Room for the model and temporary files on a volume whose size the template leaves open."""


@dataclass(frozen=True, slots=True)
class _ChannelSource:
    """The objects of a channel: keys below the dataset's root, or a prefix, which ends in a slash.

    ``count`` is the number of objects, ``bytes`` their size. ``bytes`` is 0 if the size is not
    known: for the prefixes of a split with several prefixes.
    """

    channel: str
    keys: tuple[str, ...]
    count: int
    bytes: int = 0

    @property
    def is_prefix(self) -> bool:
        return self.keys[0].endswith("/")


def config_files(asked: ConfigRequest) -> tuple[ConfigFile, ...]:
    """Make the manifests of a version, then its request, which is checked."""
    delivered, contents, cluster = asked.delivered, asked.contents, asked.cluster
    where, request = asked.where, json.loads(json.dumps(asked.template))  # without comments
    request.setdefault("TrainingJobName", job_name(delivered))
    delivery = delivered.delivery.delivery
    manifests: list[ConfigFile] = []
    if delivery in _MODES:
        sources = list(_sources(delivered, contents, cluster))
        channels = [_channel(source, delivered, cluster, manifests) for source in sources]
        index = _ChannelSource(CHANNEL, contents.index, len(contents.index))
        channels.append(_index_channel(index, delivered, manifests))
        objects = {source.channel: (source.count, source.bytes) for source in sources}
    else:
        channels, objects = list(_directories(delivered, contents, cluster)), {}
    algorithm = section(request, "AlgorithmSpecification", dict, where)
    algorithm.setdefault("TrainingInputMode", "File")  # for channels of the template
    environment = section(request, "Environment", dict, where)
    conflicts = Conflicts(where, delivered.replaces)
    for name in filter(is_stale, list(environment)):
        conflicts.drop_key(environment, name, "Environment.")
    if delivery in _FILE_SYSTEMS:  # which have other versions, too
        folder = f"/opt/ml/input/data/{CHANNEL}/{delivered.dataset}"
        environment[LOCATION] = f"{folder}/versions/{delivered.version}"
    if not environment:
        del request["Environment"]
    vpc = cluster.consumer.vpc
    if vpc is not None:
        network = {"SecurityGroupIds": list(vpc.security_groups), "Subnets": list(vpc.subnets)}
        request.setdefault("VpcConfig", network)
    present = section(request, "InputDataConfig", list, where)
    names = [channel["ChannelName"] for channel in channels]
    conflicts.drop(present, "InputDataConfig", lambda channel: _name(channel) in names)
    conflicts.check()
    if delivery in _FILE_SYSTEMS and len(present) + len(channels) > MAX_CHANNELS:
        del channels[1:]  # the first has all that the others have
    present.extend(channels)
    resources = section(request, "ResourceConfig", dict, where)
    if resources and not resources.get("InstanceGroups"):
        resources.setdefault("InstanceCount", cluster.nodes.count)
    check_request(request, objects, cluster.nodes.count, where=where)
    # API: instances without a disk of their own need the size in every mode, others allow it.
    size_bytes = downloaded_bytes(request, objects)
    if delivery in _MODES:
        size_bytes += INDEX_BYTES * sum(split.samples for split in contents.splits.values())
    resources.setdefault("VolumeSizeInGB", math.ceil(size_bytes / _GIB) + _SCRATCH_GIB)
    text = json.dumps(request, indent=2, ensure_ascii=False) + "\n"
    return (*manifests, ConfigFile("training-job.json", text, replaced=tuple(conflicts.places)))


def command(output: Path, names: Sequence[str], cluster: Cluster) -> str:
    request = shlex.quote(f"file://{output}/training-job.json")
    region = cluster.storage.access.region
    options = f" --region {region}" if region else ""
    return f"aws sagemaker create-training-job{options} --cli-input-json {request}"


def _name(channel: Any) -> Any:
    return channel.get("ChannelName") if isinstance(channel, dict) else None


def _sources(
    delivered: DeliveredVersion, contents: VersionContents, cluster: Cluster
) -> Iterator[_ChannelSource]:
    """Yield the sources of all splits with shards; refuse shards that a mode cannot read."""
    delivery, consumer = delivered.delivery.delivery, cluster.consumer
    for name, split in sorted(contents.splits.items()):
        if not split.shards:
            continue
        keys = tuple(key for pattern in split.patterns for key in expand_braces(pattern))
        # Files of text beside a shard of RecordIO are no records.
        is_record_io = keys[0].endswith(".rec")
        records_only = delivery == "pipe" or consumer.sharded
        bare = (is_record_io and records_only) or consumer.augmented
        if is_record_io and (consumer.record_io or consumer.augmented):
            message = "these shards are RecordIO already"
            raise _unusable(message, "consumer.record_io", "remove it, or choose another format")
        if delivery == "fast_file" and not split.prefixes:
            message = f"fast file mode reads prefixes, and those of {name} have other shards too"
            raise _unusable(message, delivered.location, _COMPACT)
        if delivery == "fast_file" or (len(split.prefixes) == 1 and not bare):
            for number, prefix in enumerate(split.prefixes, 1):
                several = len(split.prefixes) > 1
                count = sum(key.startswith(prefix) for key in keys) if several else split.shards
                channel = name if number == 1 else f"{name}.{number}"
                yield _ChannelSource(channel, (prefix,), count, 0 if several else split.bytes)
        else:
            keys = keys if records_only else tuple(_with_text(keys))
            yield _ChannelSource(name, keys, split.shards, split.bytes)


_COMPACT = "run `larder compact`"


def _with_text(keys: Sequence[str]) -> Iterator[str]:
    for key in keys:
        yield key
        if key.endswith(".rec"):
            yield from (f"{key.removesuffix('rec')}{ext}" for ext in ("idx", "lst"))


def _channel(
    source: _ChannelSource,
    delivered: DeliveredVersion,
    cluster: Cluster,
    manifests: list[ConfigFile],
) -> dict[str, Any]:
    consumer, delivery = cluster.consumer, delivered.delivery.delivery
    s3: dict[str, Any]
    if source.is_prefix:
        s3 = {"S3DataType": "S3Prefix", "S3Uri": f"{delivered.root}{source.keys[0]}"}
    elif consumer.augmented and delivery == "pipe":
        s3 = _listed(source, "AugmentedManifestFile", delivered, manifests)
        s3["AttributeNames"] = [_REF]
    else:
        s3 = _listed(source, "ManifestFile", delivered, manifests)
    s3["S3DataDistributionType"] = "ShardedByS3Key" if consumer.sharded else "FullyReplicated"
    channel = {
        "ChannelName": source.channel,
        "DataSource": {"S3DataSource": s3},
        "InputMode": _MODES[delivery],
    }
    if consumer.record_io or consumer.augmented:
        channel["RecordWrapperType"] = "RecordIO"
    if consumer.shuffle_seed is not None:
        channel["ShuffleConfig"] = {"Seed": consumer.shuffle_seed}
    return channel


def _index_channel(
    source: _ChannelSource, delivered: DeliveredVersion, manifests: list[ConfigFile]
) -> dict[str, Any]:
    """Make the channel of the files that `larder.open` needs beside the shards."""
    s3 = _listed(source, "ManifestFile", delivered, manifests)
    s3["S3DataDistributionType"] = "FullyReplicated"
    return {"ChannelName": CHANNEL, "DataSource": {"S3DataSource": s3}, "InputMode": "File"}


_REF = "shard-ref"


def _listed(
    source: _ChannelSource, kind: str, delivered: DeliveredVersion, manifests: list[ConfigFile]
) -> dict[str, Any]:
    """Add a manifest of the source, written below the version, and return its data source.

    A ``ManifestFile`` is a JSON array: a prefix, then the rest of each key.
    """
    if kind == "AugmentedManifestFile":
        text = "".join(_json({_REF: f"{delivered.root}{key}"}) + "\n" for key in source.keys)
    else:
        head = _common_folder(source, delivered)
        rows = [{"prefix": head}, *(f"{delivered.root}{key}"[len(head) :] for key in source.keys)]
        text = "[\n" + ",\n".join(map(_json, rows)) + "\n]\n"
    name = f"{source.channel}-{sha256_hex(text.encode())[:16]}"  # each cluster may have its own
    key = f"versions/{delivered.version}/consumers/sagemaker/{name}.manifest"
    manifests.append(ConfigFile(key, text, in_storage=True))
    return {"S3DataType": kind, "S3Uri": f"{delivered.root}{key}"}


def _common_folder(source: _ChannelSource, delivered: DeliveredVersion) -> str:
    if source.channel == CHANNEL:
        return delivered.root.removesuffix(f"{delivered.dataset}/")
    common = posixpath.commonprefix(source.keys)  # of one shard, all of its key
    return f"{delivered.root}{common[: common.rfind('/') + 1]}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _directories(
    delivered: DeliveredVersion, contents: VersionContents, cluster: Cluster
) -> Iterator[dict[str, Any]]:
    """The directory of each segment's shards where it has no others, and ``STORAGE/larder``."""
    file_system = cluster.consumer.file_system
    kind = delivered.delivery.delivery
    if file_system is None or file_system.type != kind:
        message = f"delivery {kind} needs consumer.file_system with the type {kind}"
        raise _unusable(
            message, f"cluster {cluster.name}", "describe the file system of storage.url"
        )
    base = f"{file_system.directory.rstrip('/')}/larder"
    paths = {CHANNEL: base}
    for name, split in sorted(contents.splits.items()):
        prefixes = split.prefixes if delivered.delivery.shards else ()
        for number, prefix in enumerate(prefixes, 1):
            paths[name if number == 1 else f"{name}.{number}"] = (
                f"{base}/{delivered.dataset}/{prefix.rstrip('/')}"
            )
    for channel, path in paths.items():
        source = {
            "FileSystemId": file_system.id,
            "FileSystemType": _FILE_SYSTEMS[kind],
            "FileSystemAccessMode": "ro",
            "DirectoryPath": path,
        }
        yield {
            "ChannelName": channel,
            "DataSource": {"FileSystemDataSource": source},
            "InputMode": "File",
        }


def _unusable(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.invalid_value", message, where=where, hint=hint)
