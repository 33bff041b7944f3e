"""The contents of cluster files: where training runs, and the limits of preparing."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from larder.bounds import TABLES_BYTES
from larder.config.models.copy_config import MIB, CopyConfig, RunnerConfig
from larder.config.models.field_types import (
    Bytes,
    Flag,
    Model,
    Name,
    Number,
    OrNull,
    Region,
    RuleError,
    Text,
    Whole,
)
from larder.config.models.locations import Location


class Memory(Model):
    """What a run may use beside the objects that it copies."""

    tables_bytes: Bytes = Field(
        TABLES_BYTES,
        ge=256 * MIB,
        description="maximum bytes of tables in memory, 256 MiB or more; what does not fit goes to"
        " the temporary directory",
    )


class Mount(Model):
    """A directory that exists on every node, and where training containers see it."""

    host_path: Text = Field(description="absolute path on the node")
    container_path: Text = Field(description="absolute path in the container")
    read_only: Flag = Field(True, description="whether the mount is read-only for containers")
    claim: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
        description="on Kubernetes, the persistent volume claim that containers mount there, and "
        "that the machine that prepares has at host_path; null: a directory of the node",
    )


class Downloads(Model):
    """A directory for downloads on every node, and where training containers see it."""

    host_path: Text = Field(
        pattern="^/", description="absolute path on the node, on a disk of its own"
    )
    container_path: Text = Field(pattern="^/", description="absolute path in the container")


class Nodes(Model):
    """The machines that train."""

    disk_bytes: Annotated[Annotated[Bytes, Field(ge=0)] | None, OrNull] = Field(
        None, description="disk size of a node: bytes, or a string such as 500 GB; null: unknown"
    )
    mounts: Annotated[tuple[Mount, ...], Field(strict=False)] = Field(
        (), description="directories that exist on every node, and where containers see them"
    )
    downloads: Annotated[Downloads | None, OrNull] = Field(
        None,
        description="a directory on every node, on a disk of its own, where downloads and copies "
        "of a storage directory are kept from trial to trial; null: each trial downloads into its "
        "own container",
    )
    count: Whole = Field(
        1, ge=1, le=1_000_000, description="number of nodes that train together in a trial"
    )
    ranks: Whole = Field(
        1,
        ge=1,
        le=1_000,
        description="number of processes that train on each node; by the code of Determined's "
        "guide, each downloads a copy of its own",
    )
    provider: Annotated[Literal["aws", "gcp", "on-premises"] | None, OrNull] = Field(
        None, description="whose machines the nodes are; null: the provider of the storage"
    )
    region: Region | None = Field(
        None, description="region of the nodes; null: unknown, or for SageMaker the storage's"
    )
    bytes_per_second: Bytes = Field(
        167_000_000,
        ge=1,
        description="bytes per second that a node downloads from the storage, such as 167 MB",
    )
    request_seconds: Number = Field(
        0.1, ge=0, le=3600, description="how long a node waits for the first byte of an object"
    )


class FileSystem(Model):
    """The file system that ``storage.url`` is in, as SageMaker mounts it."""

    type: Literal["efs", "fsx"] = Field(description="efs: Amazon EFS; fsx: Amazon FSx for Lustre")
    id: Text = Field(description="its ID")
    directory: Text = Field(
        pattern=r"^/",
        description="path of the directory storage.url in the file system; in FSx for Lustre it "
        "begins with the mount name",
    )


class Vpc(Model):
    """The network that training jobs of SageMaker connect to."""

    subnets: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        min_length=1, description="IDs of subnets; for FSx for Lustre, of its Availability Zone"
    )
    security_groups: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        min_length=1, description="IDs of security groups"
    )


_SAGEMAKER = ("file_system", "vpc", "sharded", "shuffle_seed", "record_io", "augmented")


CONTEXT_BYTES = 99_614_720
"""The most that Determined 0.14.2 to 0.38.1 accepts: `determined/common/constants.py`."""


class Limits(Model):
    """The thresholds of the rules that choose the delivery."""

    context_bytes: Bytes = Field(
        CONTEXT_BYTES,
        ge=0,
        le=CONTEXT_BYTES,
        description="Determined: maximum size of code and data that are submitted together",
    )
    small_bytes: Bytes = Field(
        50_000_000_000, ge=0, description="SageMaker: size below which a dataset is downloaded"
    )
    large_bytes: Bytes = Field(
        100_000_000_000,
        ge=0,
        description="size above which a dataset is not downloaded: by SageMaker, or to nodes whose"
        " disk size is not given",
    )
    object_bytes: Bytes = Field(
        50_000_000, ge=0, description="SageMaker: mean size below which shards are small"
    )
    download_fraction: Number = Field(
        0.1, ge=0, le=1, description="fraction of the training time that a download may take"
    )


class Consumer(Model):
    """The system that the emitted config is for."""

    kind: Literal[
        "determined", "sagemaker", "kubernetes", "kubeflow", "slurm", "croissant", "json"
    ] = Field("determined", description="the system")
    release: str = Field(
        "0.38",
        pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$",
        description='release of Determined, in quotes, such as "0.38"',
    )
    file_system: Annotated[FileSystem | None, OrNull] = Field(
        None, description="SageMaker: the file system that storage.url is in; null: none"
    )
    vpc: Annotated[Vpc | None, OrNull] = Field(
        None, description="SageMaker: the network of jobs; null: that of the template, if any"
    )
    sharded: Flag = Field(
        False, description="SageMaker: whether each node gets an equal number of the shards only"
    )
    shuffle_seed: Annotated[Whole | None, OrNull] = Field(
        None, description="SageMaker, file and pipe: seed of the order of shards; null: their own"
    )
    record_io: Flag = Field(
        False, description="SageMaker, pipe: whether each shard comes as one record of RecordIO"
    )
    augmented: Flag = Field(
        False,
        description="SageMaker, pipe: whether manifests are augmented ones; implies record_io",
    )
    limits: Limits = Field(
        Limits.model_construct(), description="the thresholds of the rules for the delivery"
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for name in _SAGEMAKER:
            default = type(self).model_fields[name].default
            if self.kind != "sagemaker" and getattr(self, name) is not default:
                message = f"does not apply to kind: {self.kind}"
                raise RuleError(message, key=name, hint="remove it, or change consumer.kind")
        return self


class Cluster(Model):
    """Where training runs."""

    name: Name = Field(description="name of the cluster: that of the file; may be left out")
    description: Text = Field("", description="free text")
    storage: Location = Field(description="where Larder writes and training reads")
    nodes: Nodes = Field(Nodes.model_construct(), description="the machines that train")
    consumer: Consumer = Field(
        Consumer.model_construct(), description="the system that the config is for"
    )
    copy_: CopyConfig = Field(
        CopyConfig.model_construct(), alias="copy", description="how objects are copied"
    )
    memory: Memory = Field(
        Memory.model_construct(), description="what a run may use beside the objects"
    )
    runner: RunnerConfig = Field(
        RunnerConfig.model_construct(), description="what runs the batches"
    )
