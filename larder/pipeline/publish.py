"""The publish step: segment.json, cache.json, version.json and the tag, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from larder.disk import remove_abandoned_below
from larder.errors import ConfigError, DamageError, NotFoundError
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.segments.completeness import Written, check_complete, check_stored
from larder.segments.contents import read_listed, segment_files
from larder.segments.derived_files import combined, put_derived
from larder.segments.index import Index
from larder.segments.segment_job import Job, UsedSegment, open_root
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    CacheFacts,
    CacheFile,
    VersionDocument,
)
from larder.versions.identity import (
    cache_decoders,
    content_digest,
    dataset_cache_id,
    split_rule,
)
from larder.versions.omitted import read_omitted
from larder.versions.publish import (
    Creation,
    publish_cache,
    publish_segment,
    publish_version,
    read_version,
)
from larder.versions.tags import TAG, move_tag


@dataclass(frozen=True, slots=True)
class Published:
    """A version; ``pinned`` is the version of the tag if the tag is pinned to another one."""

    version: VersionDocument
    pinned: str | None = None


def publish(
    job: Job, index: Index | None, cache: tuple[CacheFile, ...], *, progress: Progress
) -> Published:
    """Complete the new segment and caches, publish the version, and move ``latest`` to it.

    ``cache`` has the files of all caches of the version. Returns the version that this run
    published, or the version of a run that came first. SupersededError: another run has moved the
    tag since this run listed the source, or a clean has deleted files that the version needs.
    """
    progress.start("publish")
    root = open_root(job)
    segments = list(job.kept)
    if index is not None:
        segments.append(_published_segment(job, root, index))
    cached = [_with_cache(job, root, segment, cache) for segment in segments]
    document = _version_document(job, root, cached, index)
    prefix = layout.version_prefix(document.id)
    files = [file for file in document.files if file.path.startswith(prefix)]
    assert job.claim is not None, "it publishes"
    job.claim.take(root)
    version = publish_version(root, document, **_creation(job, root, [prefix], files))
    published = _tagged(job, root, version)
    if root.features.local_path:  # no process will write to these again
        complete = (layout.segment_prefix(segment.id) for segment in segments)
        folders = (local_path(root, each.rstrip("/")) for each in complete)
        remove_abandoned_below(local_path(root, prefix.rstrip("/")), folders)
    progress.finish("publish")
    return published


def _tagged(job: Job, root: Store, version: VersionDocument) -> Published:
    """Move the tag, unless it is pinned."""
    try:
        move_tag(root, TAG, version.id, job.inputs, job.expected, job.conditions)
    except ConfigError as error:
        if error.code != "version.pinned":
            raise
        return Published(version, job.expected)
    return Published(version)


def publish_existing(job: Job, *, progress: Progress) -> Published:
    """Record that these inputs also lead to a version that is already published.

    DamageError: the version does not exist any more, or is incomplete or damaged.
    """
    progress.start("publish")
    root = open_root(job)
    if job.claim:
        job.claim.take(root)
    version = read_version(root, job.version)
    if version is None:
        raise DamageError("damage.manifest", "the version does not exist", where=root.url)
    check_complete(root, version)
    published = _tagged(job, root, version)
    progress.finish("publish")
    return published


def _published_segment(job: Job, root: Store, index: Index) -> UsedSegment:
    """Publish the new segment's document, or use the document that another run wrote first."""
    document = index.segment.document
    prefixes = layout.shards_prefix(document.id), layout.index_prefix(document.id)
    shards = segment_files(root, document.files, {})
    files: Iterable[Written] = chain(document.files, shards)
    published = publish_segment(root, document, **_creation(job, root, prefixes, files))
    if published.files != document.files:
        _check_files(root, published.files, layout.segment_key(document.id))
    return replace(index.segment, document=published)


def _creation(job: Job, root: Store, prefixes: Iterable[str], files: Iterable[Written]) -> Creation:
    check = partial(check_stored, root, prefixes, files)
    return Creation(if_absent=job.conditions.if_absent, check=check)


def _with_cache(
    job: Job, root: Store, segment: UsedSegment, files: Iterable[CacheFile]
) -> tuple[UsedSegment, tuple[CacheFile, ...]]:
    """Complete the dataset's cache of a segment; return the segment and the cache files."""
    cache = dataset_cache_id(job.dataset, segment.id)
    if job.dataset.cache is None or cache is None:
        return replace(segment, use=replace(segment.use, cache=None)), ()
    document = CacheDocument(
        dataset=job.dataset.name,
        segment=segment.id,
        id=cache,
        kind=job.dataset.cache.kind,
        files={file.split: file for file in files if file.segment == segment.id},
        decoders=cache_decoders(job.dataset),
    )
    prefix, made = layout.cache_prefix(segment.id, cache), document.files.values()
    published = publish_cache(root, document, **_creation(job, root, [prefix], made))
    if published.files != document.files:
        key = layout.cache_key(segment.id, document.id)
        _check_files(root, published.files.values(), key)
    used = replace(segment, use=replace(segment.use, cache=published.id))
    return used, tuple(published.files.values())


def _check_files(root: Store, files: Iterable[StoredFile | CacheFile], document: str) -> None:
    """Check that the files of another run's document exist (``damage.size``).

    Their bytes may differ from this run's files, so this run has not replaced lost ones.
    """
    for file in files:
        with suppress(NotFoundError):
            if root.head(file.path).size_bytes == file.bytes:
                continue
        raise DamageError(
            "damage.size",
            "the file is missing, or has another length",
            where=object_url(root.url, file.path),
            hint=f"restore it, or delete {document} below {root.url} and prepare the dataset again",
        )


def _version_document(
    job: Job,
    root: Store,
    cached: Sequence[tuple[UsedSegment, tuple[CacheFile, ...]]],
    index: Index | None,
) -> VersionDocument:
    """Make the document of a version, and write the lists and indexes that follow from it.

    ``cached`` are its segments, each with the files of its cache; ``index`` is its new segment.
    """
    segments = [segment for segment, _ in cached]
    cache = None
    if job.dataset.cache is not None:
        files = [
            file
            for segment, cache_files in cached
            for file in cache_files
            if file.split in segment.listed
        ]
        splits = {
            split: tuple(file for file in files if file.split == split)
            for split in sorted({file.split for file in files})
        }
        cache = CacheFacts(job.dataset.cache.kind, splits, cache_decoders(job.dataset))
    version = VersionDocument(
        dataset=job.dataset.name,
        id=job.version,
        digest="",
        inputs=job.inputs,
        segments=tuple(segment.use for segment in segments),
        splits={
            name: combined(segment.listed[name] for segment in segments if name in segment.listed)
            for name in job.dataset.split_names
        },
        classes=job.classes,
        files=(
            *(file for segment in segments for file in segment.document.files),
            *job.files,
            job.inventory,
        ),
        cache=cache,
        skipped=job.skipped + (index.segment.document.skipped if index else 0),
        split_rule=split_rule(job.dataset),
    )
    listed = list(read_listed(root, version.files, read_omitted(root, version)))
    derived = put_derived(root, version, segments[-1].document.shape.use, listed)
    digest = content_digest(listed, version.classes, cache)
    return replace(version, digest=digest, files=(*version.files, *derived))
