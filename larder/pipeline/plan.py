"""The plan: everything that a run would do, as a value. Making it writes local files only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from larder.errors import ConfigError, NotFoundError
from larder.experiments.delivery import Advice, choose
from larder.manifest.files import ManifestFile, read_manifest
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import sort_batches
from larder.pipeline.estimate import estimate_seconds
from larder.pipeline.job import Ref, listed, opened, root_url
from larder.pipeline.manifests import read_ref
from larder.pipeline.pack import pack
from larder.pipeline.results import Count
from larder.pipeline.survey import Survey
from larder.progress import Progress
from larder.samples.arrange import Arrangement, arrange
from larder.samples.grouping import may_be_part
from larder.samples.images import is_image
from larder.shards.packing import shard_name
from larder.store.base import ObjectInfo, Store
from larder.transfer.cost import Cost, estimate_cost
from larder.transfer.difference import KnownCopy
from larder.transfer.plan import CopyPlan, plan_copies
from larder.transfer.receipts import COPIED, known_copies, object_rows
from larder.transfer.storable import Storage, Unfit, unfit_keys
from larder.versions import layout
from larder.versions.documents import SegmentUse
from larder.versions.identity import segment_id, version_id
from larder.versions.publish import TAG, read_segment, read_tag, read_version

__all__ = ["Plan", "make_plan", "mirror_receipts"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run would do.

    Attributes:
        survey: What stands at the source.
        arrangement: The samples in the order of the shards, in a local manifest.
        shard_plan: The shards, in a local manifest of schema SHARD_PLAN.
        shards: How many shards, and their bytes.
        shards_of_split: The same by split.
        oversized: Shards of one sample that is larger than ``shards.bytes``.
        copies: What the mirror lacks; None if nothing is mirrored.
        unfit: Keys that would be mirrored and that the local side cannot have.
        segment: ID of the segment.
        whole: The segment is there already.
        version: ID of the version.
        published: It is there already: only other inputs lead to it.
        cost: What reading and copying costs.
        seconds: A rough estimate of the run's time.
        delivery: How training will reach the data, and why.
    """

    survey: Survey
    arrangement: Arrangement
    shard_plan: ManifestFile
    shards: Count
    shards_of_split: Mapping[str, Count]
    oversized: int
    copies: CopyPlan | None
    unfit: Unfit
    segment: str
    whole: bool
    version: str
    published: bool
    cost: Cost
    seconds: float
    delivery: Advice


def make_plan(found: Survey, folder: Path, progress: Progress) -> Plan:
    """Plan a run from its survey.

    Args:
        found: The survey.
        folder: A private directory for the manifests of the plan.
        progress: Told of stage ``plan``.

    Raises:
        ConfigError: Splits or labels do not fit the objects.
        StoreError: The local side refuses to be listed.
    """
    progress.start("plan", objects=found.inventory.objects)
    dataset, cluster = found.dataset, found.cluster
    arrangement = _arrange(found, folder)
    packed = pack(dataset, arrangement.file.path, folder)
    shards = sum(packed.splits.values(), Count())
    segment = segment_id(dataset, arrangement.digest, arrangement.classes)
    version = version_id(dataset.name, [SegmentUse(segment)])
    with opened(cluster.local, root_url(dataset, cluster)) as root:
        whole = read_segment(root, segment) is not None
        published = whole and read_version(root, version) is not None
        unfit = Unfit() if published else _unfit(found, root, segment)
        mirrored = dataset.mirror and not unfit.count
        copies = _plan_mirror(found, root, segment, folder) if mirrored else None
    cost = _cost(found, copies, shards, whole=whole)
    progress.advance("plan", objects=found.inventory.objects)
    progress.finish("plan")
    return Plan(
        survey=found,
        arrangement=arrangement,
        shard_plan=packed.file,
        shards=shards,
        shards_of_split=packed.splits,
        oversized=packed.oversized,
        copies=copies,
        unfit=unfit,
        segment=segment,
        whole=whole,
        version=version,
        published=published,
        cost=cost,
        seconds=_seconds(found, arrangement, copies, shards, whole=whole),
        delivery=choose(dataset.experiment.delivery, cluster.local.url),
    )


def _arrange(found: Survey, folder: Path) -> Arrangement:
    return arrange(
        read_manifest(found.inventory.file.path, OBJECTS),
        found.dataset,
        label_files={split: file.data for split, file in found.label_files.items()},
        out=folder / "arrangement.parquet",
        work_dir=folder,
    )


def _unfit(found: Survey, root: Store, segment: str) -> Unfit:
    """Keys that the local side cannot have.

    Raises:
        ConfigError: ``config.path``: not even the shards can have theirs.
    """
    storage = Storage.of(root)
    longest = max(found.dataset.split_names, key=len)
    name = shard_name(found.dataset.name, longest, 0)
    reason = storage.reason(layout.shard_key(segment, longest, name))
    if reason:
        where = found.cluster.local.url
        raise ConfigError("config.path", f"of a shard, {reason}", where=where, hint="shorten it")
    if not found.dataset.mirror:
        return Unfit()
    columns = ("key", "size_bytes")
    path = found.inventory.file.path
    return unfit_keys(
        lambda: read_manifest(path, OBJECTS, columns=columns), storage, layout.mirror_prefix()
    )


def _plan_mirror(found: Survey, root: Store, segment: str, folder: Path) -> CopyPlan:
    with opened(found.dataset.source) as source:
        md5 = source.features.etag_is_md5 and root.features.etag_is_md5
    objects = object_rows(read_manifest(found.inventory.file.path, OBJECTS))
    return plan_copies(
        (info for info in objects if may_be_part(info.key, info.size_bytes)),
        _mirrored(root),
        _known(root, segment, folder),
        folder,
        md5=md5,
    )


def _mirrored(root: Store) -> Iterator[ObjectInfo]:
    prefix = layout.mirror_prefix()
    for info in listed(root, prefix):
        yield replace(info, key=info.key.removeprefix(prefix))


def _known(root: Store, segment: str, folder: Path) -> Iterator[KnownCopy]:
    """Verified copies: of the latest version, and of runs that were cut off or failed."""
    batches = chain(_of_latest(root), _of_work(root, segment))
    return known_copies(sort_batches(batches, COPIED, ["key"], work_dir=folder))


def _of_latest(root: Store) -> Iterator[pa.RecordBatch]:
    tag = read_tag(root, TAG)
    version = read_version(root, tag["version"]) if tag else None
    for file in version.files if version else ():
        if file.role == "mirror":
            ref = Ref(file.path, file.sha256, file.bytes, rows=-1)
            with suppress(NotFoundError):  # nothing is known then, and all is copied again
                yield from read_ref(root, ref, COPIED)


def _of_work(root: Store, segment: str) -> Iterator[pa.RecordBatch]:
    for ref in _unfinished_receipts(root, segment):
        yield from read_ref(root, ref, COPIED)


def mirror_receipts(root: Store, segment: str) -> Iterator[Ref]:
    """The receipts of finished batches of copies: their names are their digests."""
    yield from map(_receipt, listed(root, layout.copies_prefix(segment)))


def _receipt(info: ObjectInfo) -> Ref:
    digest = info.key.rpartition("/")[2].removesuffix(".parquet")
    return Ref(info.key, digest, info.size_bytes, rows=-1)


def _unfinished_receipts(root: Store, segment: str) -> Iterator[Ref]:
    """Those of this segment and of every segment that is not whole.

    A run that failed because of one object leads to another segment once that is mended; what it
    copied is still there.
    """
    whole = ""
    for info in listed(root, layout.segments_prefix()):
        own = info.key.removeprefix(layout.segments_prefix()).partition("/")[0]
        if info.key == layout.segment_key(own):  # it is listed before the work of its segment
            whole = own
        elif info.key.startswith(layout.copies_prefix(own)) and (own != whole or own == segment):
            yield _receipt(info)


def _cost(found: Survey, copies: CopyPlan | None, shards: Count, *, whole: bool) -> Cost:
    if whole:
        return Cost(0.0, 0.0)
    inventory = found.inventory
    return estimate_cost(
        found.dataset.source,
        found.cluster.local,
        read_objects=copies.objects if copies else inventory.objects,
        read_bytes=copies.bytes if copies else inventory.bytes,
        put_objects=(copies.objects if copies else 0) + shards.count,
    )


def _seconds(
    found: Survey,
    arrangement: Arrangement,
    copies: CopyPlan | None,
    shards: Count,
    *,
    whole: bool,
) -> float:
    if whole:
        return 0.0
    parts = arrangement.contents.parts
    images = [Count(part.objects, part.bytes) for part in parts if is_image(part.ext)]
    return estimate_seconds(
        found.dataset,
        found.cluster,
        objects=Count(arrangement.objects, arrangement.object_bytes),
        images=sum(images, Count()),
        copied=Count(copies.objects, copies.bytes) if copies else Count(),
        shards=shards,
    )
