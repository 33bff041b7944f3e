"""The plan: everything that a run would do, as a value. Making it writes only local files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from larder.config.models import Dataset
from larder.errors import ConfigError
from larder.experiments.delivery import Advice
from larder.manifest.files import ManifestFile, read_manifest
from larder.manifest.schemas import OBJECTS
from larder.pipeline.copied import mirrored, read_receipts
from larder.pipeline.estimate import estimate_seconds
from larder.pipeline.job import open_location, root_url
from larder.pipeline.pack import pack
from larder.pipeline.results import Totals
from larder.pipeline.source import SourceState
from larder.progress import Progress
from larder.samples.images import is_image
from larder.samples.order import SampleOrder, order_samples
from larder.shards.formats import shard_format
from larder.store.base import Store
from larder.transfer.cost import Cost, estimate_cost
from larder.transfer.difference import with_copies
from larder.transfer.storable import Storage, Unfit, unfit_keys
from larder.versions import layout
from larder.versions.documents import SegmentUse
from larder.versions.identity import segment_id, version_id
from larder.versions.publish import read_segment, read_version

__all__ = ["Plan", "make_plan"]

_SHA256 = "0" * 64
"""A digest of the length of those in keys."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run would do.

    Attributes:
        source_state: The state of the source.
        sample_order: The samples in the order of the shards, in a local manifest.
        shard_plan: The shards, in a local manifest of schema SHARD_PLAN.
        shards: Number of shards, and their bytes.
        shards_of_split: The same by split.
        oversized: Number of shards with a single sample larger than ``shards.bytes``.
        copies: What is missing from the mirror; None if nothing is mirrored.
        unfit: Keys that would be mirrored but that the storage cannot hold.
        segment: ID of the segment.
        complete: Whether the segment exists already.
        version: ID of the version.
        published: Whether it exists already, made from other inputs.
        cost: The cost of reading and copying.
        seconds: A rough estimate of the duration.
        delivery: How training will reach the data, and why.
    """

    source_state: SourceState
    sample_order: SampleOrder
    shard_plan: ManifestFile
    shards: Totals
    shards_of_split: Mapping[str, Totals]
    oversized: int
    copies: Totals | None
    unfit: Unfit
    segment: str
    complete: bool
    version: str
    published: bool
    cost: Cost
    seconds: float
    delivery: Advice


def make_plan(found: SourceState, folder: Path, progress: Progress) -> Plan:
    """Plan a run from the state of its source.

    Args:
        found: The state of the source.
        folder: A private directory for the manifests of the plan.
        progress: Reports progress of stage ``plan``.

    Raises:
        ConfigError: Splits or labels do not match the objects.
        StoreError: The storage cannot be listed.
    """
    progress.start("plan", objects=found.inventory.objects)
    dataset, cluster = found.dataset, found.cluster
    sample_order = _order(found, folder)
    packed = pack(dataset, sample_order, folder)
    shards = sum(packed.splits.values(), Totals())
    segment = segment_id(
        dataset,
        sample_order.digest,
        sample_order.classes,
        packed.targets,
        shards_version=shard_format(dataset.shards.format).version,
    )
    version = version_id(dataset.name, [SegmentUse(segment)])
    root = open_location(cluster.storage, root_url(dataset, cluster))
    complete = read_segment(root, segment) is not None
    published = complete and read_version(root, version) is not None
    unfit = Unfit() if published else _unfit(found, root, segment)
    copies = None
    if dataset.mirror:
        copies = Totals(sample_order.uncopied, sample_order.uncopied_bytes)
    cost = _cost(found, copies, shards, complete=complete)
    progress.advance("plan", objects=found.inventory.objects)
    progress.finish("plan")
    return Plan(
        source_state=found,
        sample_order=sample_order,
        shard_plan=packed.file,
        shards=shards,
        shards_of_split=packed.splits,
        oversized=packed.oversized,
        copies=copies,
        unfit=unfit,
        segment=segment,
        complete=complete,
        version=version,
        published=published,
        cost=cost,
        seconds=_seconds(found, sample_order, copies, shards, complete=complete),
        delivery=found.settings.advise(),
    )


def _order(found: SourceState, folder: Path) -> SampleOrder:
    return order_samples(
        _objects(found, folder),
        found.dataset,
        label_files={split: file.data for split, file in found.label_files.items()},
        out=folder / "sample-order.parquet",
        work_dir=folder,
    )


def _objects(found: SourceState, folder: Path) -> Iterator[pa.RecordBatch]:
    """The inventory, with what is known about copies, if there is a mirror."""
    inventory = read_manifest(found.inventory.file.path, OBJECTS)
    if not found.dataset.mirror:
        return inventory
    source = open_location(found.dataset.source)
    root = open_location(found.cluster.storage, root_url(found.dataset, found.cluster))
    md5 = source.features.etag_is_md5 and root.features.etag_is_md5
    return with_copies(inventory, mirrored(root), read_receipts(root), md5=md5, work_dir=folder)


def _unfit(found: SourceState, root: Store, segment: str) -> Unfit:
    """Keys that the storage cannot have.

    Raises:
        ConfigError: ``config.path``: what Larder writes itself cannot have its key.
    """
    storage = Storage.of(root)
    for what, key in _own_keys(found.dataset, segment):
        reason = storage.reason(key)
        if reason:
            message, where = f"for {what}, {reason}", found.cluster.storage.url
            raise ConfigError("config.path", message, where=where, hint="shorten it")
    if not found.dataset.mirror:
        return Unfit()
    columns = ("key", "size_bytes")
    path = found.inventory.file.path
    return unfit_keys(
        lambda: read_manifest(path, OBJECTS, columns=columns), storage, layout.mirror_prefix()
    )


def _own_keys(dataset: Dataset, segment: str) -> Iterator[tuple[str, str]]:
    """The longest keys that a run writes outside the mirror: a description, and the key."""
    longest = max(dataset.split_names, key=len)
    format_ = shard_format(dataset.shards.format)
    for name in format_.file_names(format_.shard_name(f"{dataset.name}-{longest}", 0, 1)):
        yield "a shard", layout.shard_key(segment, longest, name)
    if dataset.cache:
        yield "the cache", layout.cache_key(segment, longest, _SHA256)
    if dataset.mirror:
        batch = f"{_SHA256[:16]}-{'0' * 12}-{'0' * 12}"
        yield "a receipt", f"{layout.partial_copies_prefix(batch)}{_SHA256}.parquet"
    name = f"{'0' * 12}-{'0' * 9}-{'0' * 6}-{'0' * 6}-{_SHA256[:16]}.parquet"
    yield "a receipt", f"{layout.partial_shards_prefix(segment)}{name}"


def _cost(found: SourceState, copies: Totals | None, shards: Totals, *, complete: bool) -> Cost:
    if complete:
        return Cost(0.0, 0.0)
    inventory = found.inventory
    return estimate_cost(
        found.dataset.source,
        found.cluster.storage,
        read_objects=copies.count if copies else inventory.objects,
        read_bytes=copies.bytes if copies else inventory.bytes,
        put_objects=(copies.count if copies else 0) + shards.count,
    )


def _seconds(
    found: SourceState,
    sample_order: SampleOrder,
    copies: Totals | None,
    shards: Totals,
    *,
    complete: bool,
) -> float:
    if complete:
        return 0.0
    parts = sample_order.contents.parts
    images = [Totals(part.objects, part.bytes) for part in parts if is_image(part.ext)]
    return estimate_seconds(
        found.dataset,
        found.cluster,
        objects=Totals(sample_order.objects, sample_order.object_bytes),
        images=sum(images, Totals()),
        copied=copies or Totals(),
        shards=shards,
    )
