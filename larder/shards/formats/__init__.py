"""The registry of shard formats."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from larder.config.shape import DEFAULTS, FormatOptions
from larder.errors import ConfigError

if TYPE_CHECKING:
    from larder.shards.formats.format_interface import ShardFormat

__all__ = ["FORMATS", "shard_format"]


def _imported(module: str, name: str) -> Callable[[FormatOptions], ShardFormat]:
    """Import a format only when it is used: pyarrow alone takes a fifth of a second."""
    return lambda options: getattr(import_module(f"{__name__}.{module}"), name)(options)


FORMATS: dict[str, Callable[[FormatOptions], ShardFormat]] = {
    "webdataset": _imported("webdataset", "WebDataset"),
    "tfrecord": _imported("tfrecord.format", "TFRecord"),
    "recordio": _imported("recordio", "RecordIO"),
    "parquet": _imported("parquet", "ParquetFormat"),
    "records": _imported("records", "RecordsFormat"),
    "batches": _imported("batches", "BatchesFormat"),
}
"""Factories of `ShardFormat` from options, by the format's name in ``shards.format``."""


def shard_format(
    name: str, options: FormatOptions = DEFAULTS, version: int | None = None
) -> ShardFormat:
    """Make a format; ``version`` is the version of existing shards, None the current version.

    ConfigError: ``config.invalid_value``: a newer Larder wrote the shards.
    """
    if name not in FORMATS:
        raise ConfigError(
            "config.invalid_value",
            f"there is no shard format {name!r}",
            where="shards.format",
            hint=f"the formats are {', '.join(FORMATS)}",
        )
    made = FORMATS[name](options)
    if version is None:
        return made
    if version > made.version:
        raise ConfigError(
            "config.invalid_value",
            f"version {version} of the shard format {name}; this Larder has {made.version}",
            where="shards.format",
            hint="use a newer Larder",
        )
    made.version = version
    return made
