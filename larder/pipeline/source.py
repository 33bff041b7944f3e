"""The state of the source, and whether it has already been prepared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from larder.config.location import check_overlap
from larder.config.models import Cluster, Dataset
from larder.errors import ConfigError, NotFoundError, ObjectError
from larder.pipeline.complete import check_complete
from larder.pipeline.job import open_location, root_url
from larder.pipeline.settings import Settings
from larder.pipeline.unchanged import unchanged_version
from larder.progress import Progress
from larder.store import object_url
from larder.store.base import Store
from larder.transfer.inventory import Inventory, take_inventory
from larder.units import format_bytes
from larder.versions.documents import VersionDocument
from larder.versions.identity import inputs_digest
from larder.versions.publish import TAG, find_prepared, move_tag, own_file_errors, remember_inputs

__all__ = ["LabelFile", "SourceState", "inspect_source", "note_inputs"]

MAX_LABEL_FILE_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A label file in the source: its key, its bytes and their sha256."""

    key: str
    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a run finds out before it does anything.

    Attributes:
        settings: The run.
        inventory: The objects in the source, in a local manifest.
        inventory_us: When the listing began, microseconds since 1970 UTC.
        label_files: By split.
        inputs: The inputs digest.
        published: The version that these inputs led to, or None.
        noted: Whether that is recorded; otherwise it was found by comparing contents.
    """

    settings: Settings
    inventory: Inventory
    inventory_us: int
    label_files: Mapping[str, LabelFile]
    inputs: str
    published: VersionDocument | None
    noted: bool

    @property
    def dataset(self) -> Dataset:
        """As configured."""
        return self.settings.dataset

    @property
    def cluster(self) -> Cluster:
        """As configured."""
        return self.settings.cluster


def inspect_source(settings: Settings, folder: Path, *, progress: Progress) -> SourceState:
    """List the source and look up its inputs digest in the storage. Writes only into ``folder``.

    Args:
        settings: The run.
        folder: A private directory, for the inventory.
        progress: Reports progress of stage ``inventory``.

    Raises:
        ConfigError: The source is empty, overlaps the storage, or has no such label file.
        StoreError: A store refuses access or cannot be reached.
        DamageError: These inputs were prepared before, but the version is incomplete; see
            `larder.pipeline.complete.check_complete`.
    """
    dataset, cluster = settings.dataset, settings.cluster
    check_overlap(dataset.source, cluster.storage.url, storage_endpoint=cluster.storage.endpoint)
    inventory_us = time.time_ns() // 1000
    source = open_location(dataset.source)
    inventory = take_inventory(
        source,
        dataset.source.include,
        dataset.source.exclude,
        folder / "inventory.parquet",
        progress,
    )
    label_files = _read_label_files(dataset, source)
    inputs = _inputs(dataset, label_files, inventory.digest)
    root = open_location(cluster.storage, root_url(dataset, cluster))
    published = find_prepared(root, inputs)
    noted = published is not None
    if published is None:
        published = unchanged_version(
            source,
            root,
            inventory,
            partial(_inputs, dataset, label_files),
            label_files={file.key for file in label_files.values()},
            progress=progress,
            work_dir=folder,
        )
    if published is not None:
        check_complete(root, published)
    return SourceState(
        settings=settings,
        inventory=inventory,
        inventory_us=inventory_us,
        label_files=label_files,
        inputs=inputs,
        published=published,
        noted=noted,
    )


def note_inputs(found: SourceState, *, progress: Progress) -> None:
    """Record that these inputs led to the version found, and move ``latest`` to it.

    Nothing is written if this is already the case.

    Args:
        found: The state of the source.
        progress: Not used, because this takes almost no time.
    """
    version = found.published
    assert version is not None, "these inputs led to no version"
    root = open_location(found.cluster.storage, root_url(found.dataset, found.cluster))
    if not found.noted:
        remember_inputs(root, found.inputs, version.id)
    move_tag(root, TAG, version.id, found.inventory_us)


def _inputs(dataset: Dataset, label_files: Mapping[str, LabelFile], inventory_digest: str) -> str:
    return inputs_digest(
        dataset,
        inventory_digest,
        {split: file.sha256 for split, file in label_files.items()},
    )


def _read_label_files(dataset: Dataset, source: Store) -> dict[str, LabelFile]:
    files = dataset.labels.files if dataset.labels else {}
    return {split: _read_label_file(source, split, key) for split, key in files.items()}


def _read_label_file(source: Store, split: str, key: str) -> LabelFile:
    where = object_url(source.url, key)
    try:
        with own_file_errors():
            size_bytes = source.head(key).size_bytes
            _check_length(size_bytes, where)
            data = bytes(source.get(key))
    except NotFoundError:
        hint = f"put the labels of split {split!r} there, or change labels.files.{split}"
        raise ConfigError("config.label", "no such label file", where=where, hint=hint) from None
    except ObjectError as error:
        if error.code != "object.bad_key":
            raise
        hint = f"labels.files.{split} names a key in the source"
        raise ConfigError("config.label", error.message, where=where, hint=hint) from None
    return LabelFile(key=key, data=data, sha256=hashlib.sha256(data).hexdigest())


def _check_length(size_bytes: int, where: str) -> None:
    if size_bytes > MAX_LABEL_FILE_BYTES:
        message = (
            f"a label file of {format_bytes(size_bytes)};"
            f" the maximum is {format_bytes(MAX_LABEL_FILE_BYTES)}"
        )
        hint = "check labels.files: it names a key in the source"
        raise ConfigError("config.label", message, where=where, hint=hint)
