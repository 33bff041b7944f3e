"""What a plan is refused for, where several objects or samples are to be named."""

from __future__ import annotations

from larder.errors import ConfigError
from larder.pipeline.results import BadKeysError, BatchReport
from larder.units import format_count

__all__ = ["ClashError", "StorageKeysError"]


class StorageKeysError(BadKeysError):
    """Keys at the source that the storage cannot have, so that they could not be mirrored."""

    def __init__(self, report: BatchReport) -> None:
        first = report.failures[0]
        count = format_count(report.failed, "key")
        message = f"{count} that the storage cannot have: {first.message}"
        hint = "rename or exclude them, shorten local.url, or set mirror: false"
        ConfigError.__init__(self, "config.bad_key", message, where=first.key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (StorageKeysError, (self.report,))


class ClashError(BadKeysError):
    """Samples with two images that would be one field of a decoded cache."""

    def __init__(self, report: BatchReport) -> None:
        first = report.failures[0]
        count = format_count(report.failed, "sample")
        message = f"{count} that a cache of decoded records cannot hold: {first.message}"
        hint = "exclude or rename one of them, or set cache.records: encoded"
        ConfigError.__init__(self, "cache.schema", message, where=first.key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (ClashError, (self.report,))
