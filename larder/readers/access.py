"""How a version is reached: what can be pickled where a store, with its connections, cannot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from larder.store import open_store
from larder.store.base import Store


@dataclass(frozen=True, slots=True)
class DatasetAccess:
    """How to reach a dataset's root.

    Attributes:
        cache_dir: Where files of the version are downloaded to on this machine.
    """

    root: str
    cache_dir: Path
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None

    def store(self) -> Store:
        """The store of the dataset's root."""
        return open_store(
            self.root, endpoint=self.endpoint, region=self.region, profile=self.profile
        )
