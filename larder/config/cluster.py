"""The contents of cluster files: where training runs, and the limits of preparing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from larder.config.base import Model
from larder.config.copying import Copy
from larder.config.fields import Bytes, Flag, Name, OrNull, Text, Whole
from larder.config.stores import AnyLocation


class Mount(Model):
    """A directory that exists on every node, and where training containers see it."""

    host_path: Text = Field(description="absolute path on the node")
    container_path: Text = Field(description="absolute path in the container")
    read_only: Flag = Field(True, description="whether the mount is read-only for containers")


class Nodes(Model):
    """The machines that train."""

    disk_bytes: Annotated[Annotated[Bytes, Field(ge=0)] | None, OrNull] = Field(
        None, description="disk size of a node: bytes, or a string such as 500 GB; null: unknown"
    )
    mounts: Annotated[tuple[Mount, ...], Field(strict=False)] = Field(
        (), description="directories that exist on every node, and where containers see them"
    )


class Consumer(Model):
    """The system that the emitted config is for."""

    kind: Literal["determined"] = Field("determined", description="the system")
    release: str = Field(
        "0.38",
        pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$",
        description='its release, in quotes, such as "0.38"',
    )


class Runner(Model):
    """What runs the batches."""

    kind: Literal["local"] = Field("local", description="what runs the batches: this machine")
    workers: Annotated[Annotated[Whole, Field(ge=1, le=1024)] | None, OrNull] = Field(
        None, description="maximum number of concurrent batches, 1 to 1024; null: one per core"
    )
    batch_bytes: Bytes = Field(
        1_000_000_000,
        ge=1,
        description="size of a batch (a task run): bytes, or a string such as 1 GB",
    )


class Cluster(Model):
    """Where training runs."""

    name: Name = Field(description="name of the cluster: that of the file; may be left out")
    description: Text = Field("", description="free text")
    storage: AnyLocation = Field(description="where Larder writes and training reads")
    nodes: Nodes = Field(Nodes(), description="the machines that train")
    consumer: Consumer = Field(Consumer(), description="the system that the config is for")
    copy_: Copy = Field(Copy(), alias="copy", description="how objects are copied")
    runner: Runner = Field(Runner(), description="what runs the batches")
