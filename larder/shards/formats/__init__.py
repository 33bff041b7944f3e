"""The registry of shard formats."""

from __future__ import annotations

from larder.errors import ConfigError
from larder.shards.formats.base import ShardFormat
from larder.shards.formats.webdataset import WebDataset

__all__ = ["FORMATS", "shard_format"]

FORMATS: dict[str, ShardFormat] = {
    "webdataset": WebDataset(),
}
"""Every format under its name in ``shards.format``. They implement the protocol `ShardFormat`."""


def shard_format(name: str) -> ShardFormat:
    """Look a format up by its name in ``shards.format``.

    Raises:
        ConfigError: ``config.invalid_value``: unknown name.
    """
    if name not in FORMATS:
        raise ConfigError(
            "config.invalid_value",
            f"there is no shard format {name!r}",
            where="shards.format",
            hint=f"the formats are {', '.join(FORMATS)}",
        )
    return FORMATS[name]
