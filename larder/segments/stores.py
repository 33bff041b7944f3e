"""The stores of a dataset: its root in the storage of a cluster, and its source."""

from __future__ import annotations

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.urls import parse_url
from larder.store import OnUnlisted, object_url, open_location
from larder.store.base import Readable, Store
from larder.store.derived import DerivedObjects
from larder.versions import layout


def root_url(dataset: str, cluster: Cluster) -> str:
    """Return the URL of ``STORAGE/larder/DATASET/``; ``file:///...`` for a directory."""
    url = object_url(cluster.storage.url, layout.dataset_prefix(dataset))
    return url if parse_url(url).scheme else f"file://{url}"


def storage_of(
    dataset: Dataset, cluster: Cluster, prefix: str = "", *, unlisted: OnUnlisted | None = None
) -> Store:
    """Open the dataset's root in the storage, or a prefix below it."""
    return dataset_root(dataset.name, cluster, prefix, unlisted=unlisted)


def dataset_root(
    dataset: str, cluster: Cluster, prefix: str = "", *, unlisted: OnUnlisted | None = None
) -> Store:
    """Open the root of a dataset that is known only by name; see `storage_of`."""
    url = root_url(dataset, cluster)
    return open_location(
        cluster.storage,
        object_url(url, prefix) if prefix else url,
        limits=cluster.copy_,
        unlisted=unlisted,
    )


def source_of(
    dataset: Dataset,
    cluster: Cluster,
    url: str | None = None,
    *,
    unlisted: OnUnlisted | None = None,
) -> Readable:
    """Open the source of a dataset for a run on a cluster, or a URL with the source's credentials.

    Derived objects can be read from it.
    """
    store = open_location(dataset.source, url, limits=cluster.copy_, unlisted=unlisted)
    return with_derived(store, dataset, cluster)


def with_derived(store: Readable, dataset: Dataset, cluster: Cluster) -> Readable:
    """Add the derived objects in containers to the source or its mirror.

    Objects in Larder's own containers are read from the storage.
    """
    return DerivedObjects(store, lambda: storage_of(dataset, cluster, layout.DERIVED_PREFIX))
