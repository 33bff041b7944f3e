"""A dataset in a storage, without its dataset file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from larder.config.load import load_cluster, load_dataset, names
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.models.field_types import with_fields
from larder.config.models.locations import located
from larder.config.urls import check_url, directory
from larder.errors import ConfigError
from larder.names import NAME
from larder.segments.stores import dataset_root
from larder.store.base import Store


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """A dataset by its name, and a cluster whose storage has the dataset."""

    dataset: str
    cluster: Cluster

    def open(self) -> Store:
        return dataset_root(self.dataset, self.cluster)


def load_place(dataset: str, **where: Any) -> StoredDataset:
    """Return a dataset in a storage; ``where`` as in `load_storage`."""
    if not NAME.allows(dataset):
        message, hint = "not the name of a dataset", "write DATASET, without a path"
        raise ConfigError("config.invalid_value", message, where="DATASET", hint=hint)
    return StoredDataset(dataset, load_storage(**where))


def load_described(
    dataset: str, *, settings: Sequence[str], config_dir: str, **_: Any
) -> Dataset | None:
    """Read the dataset file, if it exists; arguments as in `load_place`."""
    folder = directory(config_dir, "--config-dir")
    if dataset not in names(folder, "datasets"):
        return None
    described = load_dataset(folder, dataset, settings)
    return with_fields(described, source=located(described.source, os.environ, "source.url"))


def load_storage(
    *, storage: str | None, cluster: str | None, settings: Sequence[str], config_dir: str
) -> Cluster:
    """Load a cluster file, or the cluster whose storage is at a URL.

    With both, the cluster file says how to reach the URL. ``settings`` override fields of the
    cluster, ``cluster.key.path=value``.
    """
    if storage is not None:
        check_url(storage, where="--storage")
    if storage and not cluster and not settings:
        described = Cluster.model_validate({"name": "storage", "storage": {"url": storage}})
    else:
        chosen = [*settings, f"cluster.storage.url={storage}"] if storage else settings
        folder = directory(config_dir, "--config-dir")
        described = load_cluster(folder, cluster or "local", chosen, os.environ)
    where = "--storage" if storage else "cluster.storage.url"
    return with_fields(described, storage=located(described.storage, os.environ, where))
