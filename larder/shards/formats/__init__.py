"""The registry of shard formats."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from larder.errors import ConfigError

if TYPE_CHECKING:
    from larder.shards.formats.base import ShardFormat

__all__ = ["FORMATS", "shard_format"]


def _imported(module: str, name: str) -> Callable[[], ShardFormat]:
    """A format that is imported when it is used: pyarrow alone takes a fifth of a second."""
    return lambda: getattr(import_module(f"{__name__}.{module}"), name)()


FORMATS: dict[str, Callable[[], ShardFormat]] = {
    "webdataset": _imported("webdataset", "WebDataset"),
}
"""Every format under its name in ``shards.format``: classes with the protocol `ShardFormat`."""


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
    return FORMATS[name]()
