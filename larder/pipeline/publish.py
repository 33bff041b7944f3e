"""The publish step: segment.json, version.json and the tag, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from larder.errors import DamageError
from larder.manifest.schemas import SHARDS
from larder.pipeline.complete import check_complete
from larder.pipeline.index import Index
from larder.pipeline.job import Job, ManifestRef, open_root
from larder.pipeline.manifests import read_ref
from larder.progress import Progress
from larder.store.base import Store
from larder.versions.documents import (
    CacheFacts,
    CacheFile,
    FileFacts,
    SegmentDocument,
    SegmentUse,
    VersionDocument,
)
from larder.versions.identity import content_digest
from larder.versions.publish import publish_segment, publish_version, read_version
from larder.versions.tags import TAG, move_tag

__all__ = ["publish", "publish_existing"]


def publish(
    job: Job, index: Index, cache: Mapping[str, CacheFile], *, progress: Progress
) -> VersionDocument:
    """Complete the segment, publish its version, and move ``latest`` to it.

    Args:
        job: The run.
        index: The segment's shards and their manifests.
        cache: What `larder.pipeline.cache.cache_split` returned, by split; empty without a cache.
        progress: Reports progress of stage ``publish``.

    Returns:
        The published version, by this run or by another that was first.

    Raises:
        DamageError: A document is damaged.
        SupersededError: Another run has moved the tag since this one listed the source.
    """
    progress.start("publish")
    root = open_root(job)
    segment = publish_segment(root, _segment(job, index, cache), if_absent=job.conditions.if_absent)
    version = publish_version(
        root, _version(job, root, segment), if_absent=job.conditions.if_absent
    )
    _point_at(root, job, version)
    progress.finish("publish")
    return version


def publish_existing(job: Job, *, progress: Progress) -> VersionDocument:
    """Record that these inputs also lead to a version that is already published.

    Only the inputs differ: an object that belongs to no sample was added or removed.

    Raises:
        DamageError: The version does not exist any more, or is incomplete or damaged.
        SupersededError: See `publish`.
    """
    progress.start("publish")
    root = open_root(job)
    version = read_version(root, job.version)
    if version is None:
        raise DamageError("damage.manifest", "the version does not exist", where=root.url)
    check_complete(root, version)
    _point_at(root, job, version)
    progress.finish("publish")
    return version


def _point_at(root: Store, job: Job, version: VersionDocument) -> None:
    move_tag(root, TAG, version.id, job.inputs, job.expected, job.conditions)


def _segment(job: Job, index: Index, cache: Mapping[str, CacheFile]) -> SegmentDocument:
    facts = None
    if job.dataset.cache:
        files = {split: (file,) for split, file in sorted(cache.items())}
        facts = CacheFacts(kind=job.dataset.cache.records, splits=files)
    return SegmentDocument(
        dataset=job.dataset.name,
        id=job.segment,
        shards=job.dataset.shards.format,
        splits=index.splits,
        classes=job.classes,
        files=(_file(index.samples, "samples"), _file(index.shards, "shards")),
        cache=facts,
        skipped=index.omitted_count,
    )


def _version(job: Job, root: Store, segment: SegmentDocument) -> VersionDocument:
    return VersionDocument(
        dataset=job.dataset.name,
        id=job.version,
        digest=content_digest(_shard_rows(root, segment), segment.classes, segment.cache),
        inputs=job.inputs,
        segments=(SegmentUse(segment.id),),
        splits=segment.splits,
        classes=segment.classes,
        files=(*segment.files, _file(job.inventory, "objects")),
        cache=segment.cache,
        skipped=job.skipped_keys + segment.skipped,
    )


def _file(ref: ManifestRef, role: str) -> FileFacts:
    return FileFacts(path=ref.key, bytes=ref.bytes, sha256=ref.sha256, role=role)


def _shard_rows(root: Store, segment: SegmentDocument) -> Iterator[tuple[str, str, int, str]]:
    for file in segment.files:
        if file.role == "shards":
            ref = ManifestRef(file.path, file.sha256, file.bytes, rows=-1)
            for batch in read_ref(root, ref, SHARDS):
                names = ("split", "name", "bytes", "sha256")
                yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)
