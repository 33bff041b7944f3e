"""Rules for a request to create a training job.

botocore's model of the service and its validation give fields, types and required fields. That
validation leaves out the values, patterns and lengths of the model, which are checked here. The
model has no rules between fields: each such rule is followed by its source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from larder.errors import ConfigError

Problem = tuple[str, str]
Objects = Mapping[str, tuple[int, int]]

_GIB = 1024**3
_GROWING = frozenset({"TrainingInstanceType"})
"""Values to which AWS adds others faster than botocore is updated."""
_VALUE = (
    r"(Invalid type for parameter [^\n,]*), value: "
    r"(?:(?!\n(?:Invalid|Missing|Unknown) ).)*, type: <class"
)


def check_request(
    request: Mapping[str, Any], objects: Objects, nodes: int, *, where: str = ""
) -> None:
    """Check a request, and report all mistakes at once, with field and rule.

    Args:
        request: The arguments of ``create_training_job``.
        objects: The number of objects and their bytes, by channel.
        nodes: The number of instances in the cluster file.
        where: Names the template in errors.
    """
    problems = [*model_problems(request)]
    if not problems:  # the rules below rely on the types
        if (count := _nodes(request)) != nodes:
            rule = f"it has {count} instances, but nodes.count of the cluster file is {nodes}"
            problems.append(("ResourceConfig.InstanceCount", rule))
        problems += [*_channel_problems(request, objects), *_volume_problems(request, objects)]
    if problems:
        text = "; ".join(f"{path}: {message}" for path, message in problems)
        message = f"not a training job of SageMaker: {text}"
        hint = "fix the template or the cluster file"
        raise ConfigError("config.invalid_experiment", message, where=where, hint=hint)


@lru_cache(1)
def _shape() -> Any:
    from botocore.session import get_session  # slow to import, and for one consumer alone

    service = get_session().get_service_model("sagemaker")
    return service.operation_model("CreateTrainingJob").input_shape


def model_problems(request: Mapping[str, Any]) -> Iterator[Problem]:
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(request, _shape()).generate_report()
    if report:
        # The report quotes values, which may be secrets.
        report = re.sub(_VALUE, r"\1, type: <class", report, flags=re.DOTALL)
        yield "request", " ".join(report.split())
        return
    for field in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition"):
        if not request.get(field):  # required but for jobs without servers
            yield field, "required"
    yield from _value_problems(request, _shape(), "")


def _value_problems(value: Any, shape: Any, path: str) -> Iterator[Problem]:
    """Check values, patterns and lengths, which botocore's own validation accepts."""
    if shape.type_name == "structure":
        for name, member in value.items():
            yield from _value_problems(member, shape.members[name], f"{path}.{name}".lstrip("."))
        return
    limits = shape.metadata
    if "max" in limits and (value if isinstance(value, int) else len(value)) > limits["max"]:
        yield path, f"at most {limits['max']}"
    if shape.type_name == "list":
        for number, item in enumerate(value):
            yield from _value_problems(item, shape.member, f"{path}.{number}")
    elif shape.type_name == "map":
        for name, item in value.items():
            yield from _value_problems(name, shape.key, f"{path}.{name}")
            yield from _value_problems(item, shape.value, f"{path}.{name}")
    elif shape.type_name == "string":
        if shape.name not in _GROWING and value not in limits.get("enum", [value]):
            yield path, f"must be one of {', '.join(limits['enum'])}, not {value!r}"
        pattern = limits.get("pattern")
        if pattern and not _matches(pattern, value):
            yield path, f"must match {pattern}"


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value, re.DOTALL) is not None
    except re.error:  # some are Java's
        return True


def _channel_problems(request: Mapping[str, Any], objects: Objects) -> Iterator[Problem]:
    names = [channel["ChannelName"] for channel in request["InputDataConfig"]]
    for number, channel in enumerate(request["InputDataConfig"]):
        path = f"InputDataConfig.{number}"
        if names.index(channel["ChannelName"]) != number:  # it names a directory
            yield f"{path}.ChannelName", f"there are two channels {channel['ChannelName']!r}"
        sources = channel["DataSource"]
        if len(sources) != 1:  # API: Channel.DataSource
            yield f"{path}.DataSource", "must have one source"
        mode = channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"]
        if "S3DataSource" in sources:
            nodes, (count, _) = _nodes(request), objects.get(channel["ChannelName"], (None, 0))
            yield from _s3_problems(channel, mode, path)
            too_few = count is not None and count < nodes
            if too_few and _is_sharded(channel):  # API: S3DataDistributionType
                rule = f"has {count} objects for {nodes} instances; see shards.count_min"
                yield f"{path}.DataSource.S3DataSource.S3DataDistributionType", rule
        if "FileSystemDataSource" in sources:
            if not request.get("VpcConfig"):  # Access Training Data, "must connect to a VPC"
                yield "VpcConfig", "required to reach a file system"
            if mode != "File":  # a file system is mounted, not streamed
                yield f"{path}.InputMode", "must be File for a file system"


def _s3_problems(channel: Mapping[str, Any], mode: str, path: str) -> Iterator[Problem]:
    source = channel["DataSource"]["S3DataSource"]
    kind, place = source["S3DataType"], f"{path}.DataSource.S3DataSource"
    if mode == "FastFile" and kind != "S3Prefix":  # Access Training Data, "S3 prefixes only"
        yield f"{place}.S3DataType", "must be S3Prefix in fast file mode"
    if kind == "AugmentedManifestFile" and mode != "Pipe":  # API: S3DataType
        yield f"{place}.S3DataType", "AugmentedManifestFile is for pipe mode only"
    if bool(source.get("AttributeNames")) != (kind == "AugmentedManifestFile"):  # API
        yield f"{place}.AttributeNames", "belongs to AugmentedManifestFile, which needs it"
    # API: CompressionType, RecordWrapperType. FastFile: not documented, so not emitted.
    for field in ("CompressionType", "RecordWrapperType"):
        if channel.get(field, "None") != "None" and mode != "Pipe":
            yield f"{path}.{field}", f"{channel[field]} is for pipe mode only"
    if "ShuffleConfig" in channel and mode == "FastFile":
        yield f"{path}.ShuffleConfig", "is not for fast file mode"


def _nodes(request: Mapping[str, Any]) -> int:
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    return sum(group.get("InstanceCount", 1) for group in groups) or 1


def _is_sharded(channel: Mapping[str, Any]) -> bool:
    source = channel["DataSource"].get("S3DataSource", {})
    return bool(source.get("S3DataDistributionType") == "ShardedByS3Key")


def downloaded_bytes(request: Mapping[str, Any], objects: Objects) -> int:
    """Return the bytes that file mode downloads to an instance.

    Instances share the objects of a sharded channel equally.
    """
    size_bytes = 0.0
    for channel in request["InputDataConfig"]:
        count, channel_bytes = objects.get(channel["ChannelName"], (0, 0))
        if channel.get("InputMode") == "File" and count:
            most = math.ceil(count / _nodes(request)) if _is_sharded(channel) else count
            size_bytes += channel_bytes * most / count
    return math.ceil(size_bytes)


def _volume_problems(request: Mapping[str, Any], objects: Objects) -> Iterator[Problem]:
    needed_bytes = downloaded_bytes(request, objects)
    size = request["ResourceConfig"].get("VolumeSizeInGB")
    if size is not None and size * _GIB < needed_bytes:
        # Access Training Data: "must have enough storage space"
        rule = f"must be more than the {needed_bytes / _GIB:,.1f} GiB that file mode downloads"
        yield "ResourceConfig.VolumeSizeInGB", rule
