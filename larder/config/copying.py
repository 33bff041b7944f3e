"""How objects are copied: ``copy`` in cluster files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from larder.config.access import GIVE_UP_SECONDS
from larder.config.base import Model
from larder.config.fields import Bytes, Number, OrNull, Text, Whole
from larder.machine import copy_memory_bytes

MIB = 1024**2

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


class Copy(Model):
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
        "eighth of the machine's memory, 128 MiB to 2 GiB",
    )
    max_bytes_per_second: Annotated[Annotated[Bytes, Field(ge=1)] | None, OrNull] = Field(
        None, description="maximum bandwidth, bytes per second, such as 100 MB; null: no limit"
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
    skyplane: Skyplane = Field(Skyplane(), description="the copy engine Skyplane")

    @property
    def memory(self) -> int:
        """Bytes of objects in memory, here: ``memory_bytes``, or this machine's share."""
        return copy_memory_bytes() if self.memory_bytes is None else self.memory_bytes
