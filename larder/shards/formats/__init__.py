"""The formats of shards, by the name that ``shards.format`` gives them."""

from __future__ import annotations

from larder.errors import ConfigError
from larder.shards.formats.base import ShardFormat
from larder.shards.formats.webdataset import WebDataset

__all__ = ["FORMATS", "shard_format"]

FORMATS: dict[str, ShardFormat] = {
    "webdataset": WebDataset(),
}
"""One line for each; `larder.shards.formats.base.ShardFormat` says what it takes."""


def shard_format(name: str) -> ShardFormat:
    """The format of that name.

    Raises:
        ConfigError: ``config.invalid_value``: there is none.
    """
    if name not in FORMATS:
        raise ConfigError(
            "config.invalid_value",
            f"there is no format {name!r} of shards",
            where="shards.format",
            hint=f"the formats are {', '.join(FORMATS)}",
        )
    return FORMATS[name]
