"""Settings of a cluster file for copying objects and running batches, with their limits."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from larder.config.models.field_types import Bytes, Model, Number, OrNull, RuleError, Text, Whole
from larder.config.urls import GIVE_UP_SECONDS
from larder.machine import copy_memory_bytes

MIB = 1024**2

ADDRESS = r"^((tcp|tls|ray)://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}$"
"""Address of a scheduler: a host and a port."""

Seconds = Annotated[Whole, Field(ge=1, le=604_800)]
"""One second to a week."""


class Skyplane(Model):
    """The copy engine Skyplane, which rents machines between providers."""

    min_bytes: Bytes = Field(
        100_000_000_000,
        ge=0,
        description="with engine auto: size of a copy between providers for which machines are "
        "rented, such as 100 GB",
    )
    max_instances: Whole = Field(
        1, ge=1, le=32, description="maximum number of machines at either end, 1 to 32"
    )
    timeout_seconds: Seconds = Field(
        7200, description="when a transfer is ended, whatever it has copied"
    )
    python: Text | None = Field(
        None,
        min_length=1,
        description="Python of the environment that Skyplane is in; null: that of make skyplane in"
        " a checkout",
    )


class CopyConfig(Model):
    """How objects are copied, and the limits of that."""

    engine: Literal["auto", "native", "skyplane"] = Field(
        "auto",
        description="the copy engine; auto: skyplane for large copies between providers only",
    )
    verify: Literal["digest", "size"] = Field(
        "digest", description="how copies are checked: by a digest of their content, or their size"
    )
    concurrency: Whole = Field(
        256,
        ge=1,
        le=1024,
        description="maximum number of requests in progress, 1 to 1024; fewer where that is faster",
    )
    memory_bytes: Annotated[Annotated[Bytes, Field(ge=MIB)] | None, OrNull] = Field(
        None,
        description="maximum bytes of objects in memory, 1 MiB or more, such as 128 MiB; null: an "
        "eighth of the machine's memory, 128 MiB to 2 GiB, and at most 96 MiB for a copy",
    )
    max_bytes_per_second: Annotated[Annotated[Bytes, Field(ge=1)] | None, OrNull] = Field(
        None,
        description="bytes per second that a run reads at most, and that it writes, such as "
        "100 MB; null: no limit",
    )
    max_cost_usd: Annotated[Annotated[Number, Field(ge=0)] | None, OrNull] = Field(
        None, description="refuse a plan that costs more, in US dollars; null: no limit"
    )
    max_failure_rate: Number = Field(
        0.01,
        ge=0,
        le=1,
        description="fraction of failed objects at which a run stops early, 0 to 1",
    )
    give_up_seconds: Number = Field(
        GIVE_UP_SECONDS,
        ge=1,
        le=86_400,
        description="when a request that gets no answer fails, with all its repetitions",
    )
    skyplane: Skyplane = Field(Skyplane.model_construct(), description="the copy engine Skyplane")

    @property
    def memory(self) -> int:
        """Bytes of objects in memory, here: ``memory_bytes``, or this machine's share."""
        return copy_memory_bytes() if self.memory_bytes is None else self.memory_bytes


class RunnerConfig(Model):
    """What runs the batches."""

    kind: Literal["local", "dask", "ray"] = Field(
        "local", description="where batches run: local: on the machine of the run"
    )
    address: Annotated[Annotated[Text, Field(pattern=ADDRESS)] | None, OrNull] = Field(
        None,
        description="Dask's scheduler or Ray's head, such as tcp://10.0.0.5:8786 or "
        "ray://10.0.0.5:10001; null: started on the machine of the run",
    )
    workers: Annotated[Annotated[Whole, Field(ge=1, le=1024)] | None, OrNull] = Field(
        None,
        description="maximum number of concurrent batches and, on the machine of the run, of "
        "processes that do their work, 1 to 1024; null: one per core, or as many batches as Dask "
        "or Ray has room for",
    )
    batch_bytes: Bytes = Field(
        1_000_000_000,
        ge=1,
        description="size of a batch (a task run): bytes, or a string such as 1 GB",
    )

    @model_validator(mode="after")
    def _address_of_a_kind(self) -> Self:
        if self.address and self.kind == "local":
            message = "is of another machine, but batches run on this one"
            raise RuleError(
                message, key="address", hint="set runner.kind to dask or ray, or address to null"
            )
        return self
