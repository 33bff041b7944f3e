"""The job: what a step needs to know, small enough to be sent to a task on any machine.

Manifests are passed between steps by reference: their key below the dataset's root, and their
sha256.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from larder.config.models import Cluster, Dataset, Location
from larder.config.urls import parse_url
from larder.errors import StoreError
from larder.manifest.files import ManifestFile
from larder.store import object_url, open_store
from larder.store.base import ObjectInfo, Store
from larder.temporary import workshop
from larder.versions import layout
from larder.versions.conditions import Conditions
from larder.versions.publish import own_file_errors

__all__ = [
    "CopyBatch",
    "Job",
    "ManifestRef",
    "listed",
    "open_location",
    "open_root",
    "open_source",
    "put_named",
    "put_work",
    "root_url",
    "scratch",
]


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest in the dataset's store: key below the root, digest, bytes, rows."""

    key: str
    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Consecutive rows of the sample order with objects to copy.

    Attributes:
        first_row: The first row.
        rows: Number of rows.
        objects: Number of objects to copy.
        bytes: Total size of these objects.
    """

    first_row: int
    rows: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that the steps of one run share.

    Attributes:
        dataset: The dataset.
        cluster: The cluster.
        inputs: The inputs digest.
        segment: ID of the segment to build.
        version: ID of the version to publish.
        classes: In the order of their numbers; empty without labels.
        expected: ID of the version that the tag named before the listing; None if there was no tag.
        conditions: Which conditional writes the storage keeps.
        complete: Whether the segment existed when the run was planned; only the version is missing.
        published: Whether the version existed, too, so that only the inputs have to be recorded.
        skipped_keys: Keys that were left out because no sample can have them.
        inventory: ManifestRef of schema OBJECTS: the source, as it is published.
        sample_order: ManifestRef of schema SAMPLE_ORDER.
        shard_plan: ManifestRef of schema SHARD_PLAN.
    """

    dataset: Dataset
    cluster: Cluster
    inputs: str
    segment: str
    version: str
    classes: tuple[str, ...]
    expected: str | None
    conditions: Conditions
    complete: bool
    published: bool
    skipped_keys: int
    inventory: ManifestRef
    sample_order: ManifestRef
    shard_plan: ManifestRef

    @property
    def root(self) -> str:
        """URL of the dataset's root in the storage."""
        return root_url(self.dataset, self.cluster)


def root_url(dataset: Dataset, cluster: Cluster) -> str:
    """URL of ``STORAGE/larder/DATASET/``; ``file:///...`` for a directory."""
    url = object_url(cluster.storage.url, layout.dataset_prefix(dataset.name))
    return url if parse_url(url).scheme else f"file://{url}"


def open_location(location: Location, url: str | None = None) -> Store:
    """The store at a location, or at another URL with the same credentials and endpoint."""
    return open_store(
        url or location.url,
        endpoint=location.endpoint,
        region=location.region,
        profile=location.profile,
    )


def open_root(job: Job) -> Store:
    """The dataset's root in the storage."""
    return open_location(job.cluster.storage, job.root)


def open_source(job: Job) -> Store:
    """The source."""
    return open_location(job.dataset.source)


def listed(root: Store, prefix: str) -> Iterator[ObjectInfo]:
    """The objects below the dataset's root whose keys begin with ``prefix``, in order.

    A directory that does not exist is empty, like a prefix in a bucket.
    """
    pages = root.list(prefix)
    try:
        yield from chain.from_iterable(pages)
    except StoreError as error:
        if error.code != "store.missing" or not root.features.local_path:
            raise


@contextmanager
def scratch() -> Iterator[Path]:
    """A private directory for temporary files, removed at the end.

    Directories that killed runs left in the system's temporary directory are removed, too.
    """
    with workshop(Path(tempfile.gettempdir())) as folder:
        yield folder


def put_work(store: Store, segment: str, role: str, file: ManifestFile) -> ManifestRef:
    """Write a manifest into the work folder of the segment that is being built."""
    return put_named(store, f"{layout.work_prefix(segment)}{role}-{file.sha256[:16]}.parquet", file)


def put_named(store: Store, key: str, file: ManifestFile) -> ManifestRef:
    """Write a manifest to a key."""
    with own_file_errors():
        store.upload(key, file.path)
    return ManifestRef(key=key, sha256=file.sha256, bytes=file.bytes, rows=file.rows)
