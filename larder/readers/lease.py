"""Renewal of leases, so that no clean deletes a version while training reads it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from larder.errors import LarderError
from larder.readers.access import DatasetAccess
from larder.readers.numbers import Array
from larder.readers.sources import BatchSource, Read
from larder.versions.leases import renew_configs

EVERY_SECONDS = 24 * 3600.0


class LeasedSource:
    """Reads from another source, and renews the leases of the version's configs once a day.

    The first renewal follows the second reading, so a look at some samples costs nothing. Only
    training that outlasts its lease needs a renewal, so a failed or refused one is no error.
    """

    def __init__(self, source: BatchSource, access: DatasetAccess, version: str) -> None:
        self._source = source
        self._access = access
        self._version = version
        self._due: float | None = None

    @property
    def is_decoded(self) -> bool:
        return self._source.is_decoded

    @property
    def names(self) -> Collection[str]:
        return self._source.names

    def read(self, shares: Sequence[Array]) -> Sequence[Read]:
        reads, now = self._source.read(shares), time.monotonic()
        if self._due is None:
            self._due = now
        elif self._due <= now:
            self._due = now + EVERY_SECONDS
            with suppress(LarderError):
                renew_configs(self._access.store(), self._version, time.time_ns() // 1000)
        return reads

    def stored_bytes(self, numbers: Array) -> Array | None:
        return self._source.stored_bytes(numbers)
