"""Jobs and batches of a verification: small values that can be sent to a task on any machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.shape import FormatUse
from larder.manifest.sealed import StoredFile
from larder.segments.stores import storage_of
from larder.store.base import Store
from larder.versions.documents import CacheFile, VersionDocument
from larder.versions.index import Shard

SHOWN_UNUSED = 20
"""Maximum number of unused files that are named."""


class VerifyJob(NamedTuple):
    """A verification of a version; ``version`` is an ID or a tag.

    ``sample_percent`` of the shards and cache files, chosen by ``seed``, are read; None reads all.
    """

    dataset: Dataset
    cluster: Cluster
    version: str
    sample_percent: float | None = None
    seed: int = 0
    by_id: bool = False


@dataclass(frozen=True, slots=True)
class VerifyBatch:
    """Files of one segment that a task reads: some shards, or a cache file.

    ``format`` is None if segment.json is damaged, ``index`` and ``sources`` if these files are.
    """

    segment: str
    format: FormatUse | None
    index: StoredFile | None
    sources: StoredFile | None
    classes: int
    shards: tuple[Shard, ...] = ()
    cache: CacheFile | None = None

    @property
    def name(self) -> str:
        """The first file, for people."""
        return self.cache.path if self.cache else self.shards[0].name

    @property
    def files(self) -> int:
        return len(self.published)

    @property
    def rows(self) -> int:
        """Number of samples in the shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.published)

    @property
    def singles(self) -> list[VerifyBatch]:
        """The cache file, or each shard, as a batch of its own."""
        return [self] if self.cache else [replace(self, shards=(each,)) for each in self.shards]

    @property
    def published(self) -> list[StoredFile]:
        """Published state of the files."""
        if self.cache:
            return [StoredFile(self.cache.path, self.cache.bytes, self.cache.sha256, "cache")]
        return [file for shard in self.shards for file in shard.published]


class Unused(NamedTuple):
    """Files below a version's prefixes that Larder wrote and nothing names; the first by key."""

    files: int = 0
    bytes: int = 0
    keys: tuple[str, ...] = ()

    def plus(self, key: str, size_bytes: int) -> Unused:
        keys = (*self.keys, key)[:SHOWN_UNUSED]
        return Unused(self.files + 1, self.bytes + size_bytes, keys)


class Inspected(NamedTuple):
    """Content of the documents and manifests of a version.

    ``version`` is None if its document is damaged or lost. ``id`` is empty if the tag that names
    the version is. ``files`` and ``bytes`` are of all shards and caches, also of files that no
    batch reads.
    """

    version: VersionDocument | None
    id: str
    batches: tuple[VerifyBatch, ...] = ()
    files: int = 0
    bytes: int = 0
    unused: Unused = Unused()


def open_verified(job: VerifyJob) -> Store:
    """Open the dataset's root in the storage."""
    return storage_of(job.dataset, job.cluster)
