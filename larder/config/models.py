"""What a dataset file and a cluster file may say: frozen models that refuse unknown keys."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from larder.units import parse_bytes

__all__ = [
    "Cache",
    "Cluster",
    "Consumer",
    "Copy",
    "Dataset",
    "Experiment",
    "HashSplits",
    "Labels",
    "Location",
    "Mount",
    "Nodes",
    "Runner",
    "Shards",
    "Source",
]

Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes, json_schema_input_type=int | str),
    Field(ge=0, description="bytes: a whole number, or text such as 150 MB or 128 MiB"),
]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
SplitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Globs = Annotated[
    tuple[str, ...],
    BeforeValidator(_one_or_more, json_schema_input_type=str | list[str]),
    Field(min_length=1, description="one glob or several: * within a segment, ** across them"),
]


class Model(BaseModel):
    """Base of all models: frozen, and a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Location(Model):
    """A bucket prefix or a directory, and how to reach it. Credentials never stand here."""

    url: Annotated[
        str, Field(min_length=1, description="s3://bucket/prefix, file:///dir or a path")
    ]
    region: str | None = Field(None, description="region of the bucket, such as us-west-2")
    endpoint: str | None = Field(None, description="URL of an S3 server that is not AWS's own")
    profile: str | None = Field(None, description="profile of the AWS credentials file to use")

    @field_validator("url", "endpoint")
    @classmethod
    def _without_credentials(cls, value: str | None) -> str | None:
        if value and re.match(r"[a-z0-9+.-]+://[^/]*@", value, re.IGNORECASE):
            raise ValueError("a URL must not hold credentials; use the AWS chain or a profile")
        return value

    @field_validator("region", "endpoint", "profile")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value or None


class Source(Location):
    """Where the data lives."""

    include: Globs = Field(("**",), description="keys to take")
    exclude: tuple[str, ...] = Field((), description="keys to leave out, after include")


class HashSplits(Model):
    """Splits by a keyed hash of the sample key: stable as the dataset grows."""

    hash: int = Field(description="seed of the hash")
    parts: dict[SplitName, float] = Field(
        min_length=1, description="share of each split; shares add up to 1"
    )
    group: str | None = Field(
        None, description="regular expression; samples whose first group agrees stay together"
    )

    @field_validator("parts")
    @classmethod
    def _shares(cls, value: dict[str, float]) -> dict[str, float]:
        if any(share <= 0 for share in value.values()) or abs(sum(value.values()) - 1) > 1e-9:
            raise ValueError("shares must be above 0 and add up to 1")
        return value

    @field_validator("group")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                groups = re.compile(value).groups
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
            if groups < 1:
                raise ValueError("the pattern needs one group, such as patient-(\\d+)")
        return value


class Labels(Model):
    """Where the label of a sample comes from."""

    source: Literal["folder"] = Field(
        "folder", alias="from", description="folder: the immediate parent is the class"
    )
    files: dict[SplitName, str] = Field(
        {}, description="for a split: key in the source of a file that maps names to classes"
    )
    classes: tuple[str, ...] | None = Field(
        None, description="the classes in order, instead of all that occur, sorted by bytes"
    )


class Shards(Model):
    """The container files that training reads."""

    format: Literal["webdataset"] = "webdataset"
    bytes: Bytes = Field(150_000_000, ge=1, description="target size of a shard, bytes")
    count_min: int | None = Field(
        None, ge=1, description="least number of shards of a split: they become smaller until then"
    )
    shuffle: int | None = Field(None, description="seed of a global shuffle; null keeps key order")


class Cache(Model):
    """The LMDB cache."""

    records: Literal["encoded", "decoded"] = Field(
        "encoded", description="the parts' own bytes, or images decoded to arrays"
    )


class Experiment(Model):
    """The config to hand over."""

    template: str | None = Field(None, description="file in configs/experiments")
    delivery: Literal["auto", "bind_mount", "bucket"] = "auto"


def _everything() -> dict[str, tuple[str, ...]]:
    return {"train": ("**",)}


class Dataset(Model):
    """A named body of data: what it is, where it lives, how it is shaped."""

    name: Name
    description: str = ""
    source: Source
    splits: dict[SplitName, Globs] | HashSplits = Field(
        default_factory=_everything,
        description="globs by split, first match wins; or a keyed hash",
    )
    labels: Labels | None = None
    mirror: bool = Field(True, description="copy the source's objects to the local side first")
    shards: Shards = Shards()
    validate_: Literal["none", "header", "decode"] = Field(
        "header", alias="validate", description="how images are checked while they are sharded"
    )
    on_bad_key: Literal["fail", "skip"] = "fail"
    on_bad_sample: Literal["fail", "skip"] = "fail"
    cache: Cache | None = None
    experiment: Experiment = Experiment()

    @field_validator("splits", mode="before")
    @classmethod
    def _which_splits(cls, value: Any) -> Any:
        if isinstance(value, dict) and "hash" in value and "parts" in value:
            return HashSplits.model_validate(value)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not isinstance(self.splits, HashSplits) and not self.splits:
            raise ValueError("splits: at least one is needed")
        if self.labels:
            names = self.split_names
            for split in self.labels.files:
                if split not in names:
                    raise ValueError(f"labels.files: there is no split {split!r}")
        return self

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits in the order of the file."""
        return tuple(self.splits.parts if isinstance(self.splits, HashSplits) else self.splits)

    @property
    def validation(self) -> Literal["none", "header", "decode"]:
        """How images are checked; a decoded cache needs every image to decode."""
        return "decode" if self.cache and self.cache.records == "decoded" else self.validate_


class Mount(Model):
    """A directory of every node, and where training containers see it."""

    host_path: str
    container_path: str
    read_only: bool = True


class Nodes(Model):
    """The machines that train."""

    disk_bytes: Bytes | None = None
    mounts: tuple[Mount, ...] = ()


class Consumer(Model):
    """What the emitted config is for."""

    kind: Literal["determined"] = "determined"
    release: str = Field("0.38", pattern=r"^\d+\.\d+(\.\d+)?$")


class Copy(Model):
    """Limits of the copy."""

    engine: Literal["auto", "native"] = "auto"
    concurrency: int = Field(32, ge=1, le=1024, description="objects under way at once")
    memory_bytes: Bytes = Field(
        128 * 1024**2, ge=1024**2, description="bytes held in memory at once"
    )
    max_cost_usd: float | None = Field(None, ge=0, description="refuse a plan that costs more")


class Runner(Model):
    """What runs the batches."""

    kind: Literal["local"] = "local"
    workers: int | None = Field(None, ge=1, description="batches at once; null: one per core")
    batch_bytes: Bytes = Field(1_000_000_000, ge=1, description="bytes of one batch, one task run")


class Cluster(Model):
    """Where training runs."""

    name: Name
    description: str = ""
    local: Location
    nodes: Nodes = Nodes()
    consumer: Consumer = Consumer()
    copy_: Copy = Field(Copy(), alias="copy")
    runner: Runner = Runner()
