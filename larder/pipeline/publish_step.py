"""The publish step: segment.json, cache.json, version.json and the tag, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from larder.disk import remove_abandoned_below
from larder.errors import ConfigError, DamageError, NotFoundError
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.segments.completeness import Written, check_complete, check_stored
from larder.segments.derived_files import NO_SHARDS, listed_splits, put_derived
from larder.segments.segment_job import Job, open_root
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    CacheFacts,
    CacheFile,
    Document,
    SegmentDocument,
    SegmentUse,
    VersionDocument,
)
from larder.versions.identity import cache_decoders, content_digest, dataset_cache_id, split_rule
from larder.versions.index import Shard
from larder.versions.omitted import read_omitted
from larder.versions.publish import publish_document, read_version
from larder.versions.tags import TAG, move_tag
from larder.versions.version_copy import read_listed, segment_files


class Published(NamedTuple):
    """A version; ``pinned`` is the version of the tag if the tag is pinned to another one."""

    version: VersionDocument
    pinned: str | None = None


def publish(
    job: Job, segment: SegmentDocument | None, cache: tuple[CacheFile, ...], *, progress: Progress
) -> Published:
    """Complete the new ``segment`` and caches, publish the version, and move ``latest`` to it.

    Returns the version that this run published, or the version of a run that came first.
    SupersededError: another run has moved the tag since this run listed the source, or a clean has
    deleted files that the version needs.
    """
    progress.start("publish")
    root = open_root(job)
    segments, uses = list(job.kept), list(job.uses)
    if segment is not None:
        segments.append(_published_segment(job, root, segment))
        uses.append(SegmentUse(job.segment))
    caches = [_published_cache(job, root, segment.id, cache) for segment in segments]
    document = _version_document(job, root, segments, uses, caches)
    prefix = layout.version_prefix(document.id)
    files = [file for file in document.files if file.path.startswith(prefix)]
    assert job.claim is not None, "it publishes"
    job.claim.take(root)
    version = _publish_after(job, root, document, [prefix], files)
    published = _tagged(job, root, version)
    if root.features.local_path:  # no process will write to these again
        complete = (layout.segment_prefix(segment.id) for segment in segments)
        folders = (local_path(root, each.rstrip("/")) for each in complete)
        remove_abandoned_below(local_path(root, prefix.rstrip("/")), folders)
    progress.finish("publish")
    return published


def _published_segment(job: Job, root: Store, document: SegmentDocument) -> SegmentDocument:
    """Publish the new segment's document, or use the document that another run wrote first."""
    prefixes = layout.shards_prefix(document.id), layout.index_prefix(document.id)
    shards = segment_files(root, document.files, {})
    files: Iterable[Written] = chain(document.files, shards)
    published = _publish_after(job, root, document, prefixes, files)
    if published.files != document.files:
        _check_files(root, published.files, layout.segment_key(document.id))
    return published


def _publish_after(
    job: Job, root: Store, document: Document, prefixes: Iterable[str], files: Iterable[Written]
) -> Document:
    """Publish a document once the store has the files that it names."""
    check = partial(check_stored, root, prefixes, files)
    return publish_document(root, document, if_absent=job.conditions.if_absent, check=check)


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


def _published_cache(
    job: Job, root: Store, segment: str, files: Iterable[CacheFile]
) -> CacheDocument | None:
    """Complete the dataset's cache of a segment; None if the dataset has no cache."""
    cache = dataset_cache_id(job.dataset, segment)
    if job.dataset.cache is None or cache is None:
        return None
    document = CacheDocument(
        dataset=job.dataset.name,
        segment=segment,
        id=cache,
        kind=job.dataset.cache.kind,
        files={file.split: file for file in files if file.segment == segment},
        decoders=cache_decoders(job.dataset),
    )
    prefix, made = layout.cache_prefix(segment, cache), document.files.values()
    published = _publish_after(job, root, document, [prefix], made)
    if published.files != document.files:
        key = layout.cache_key(segment, document.id)
        _check_files(root, published.files.values(), key)
    return published


def _version_document(
    job: Job,
    root: Store,
    segments: Sequence[SegmentDocument],
    uses: Sequence[SegmentUse],
    caches: Sequence[CacheDocument | None],
) -> VersionDocument:
    """Make the document of a version, and write the lists and indexes that follow from it."""
    new_skipped = segments[-1].skipped if job.new else 0
    version = VersionDocument(
        dataset=job.dataset.name,
        id=job.version,
        digest="",
        inputs=job.inputs,
        segments=tuple(
            replace(use, cache=cache.id if cache else None)
            for use, cache in zip(uses, caches, strict=True)
        ),
        splits={},
        classes=job.classes,
        files=(*(file for segment in segments for file in segment.files), *job.files),
        cache=None,
        skipped=job.skipped + new_skipped,
        split_rule=split_rule(job.dataset),
    )
    listed = list(read_listed(root, version.files, read_omitted(root, version)))
    splits = listed_splits(listed)
    version = replace(
        version,
        splits={name: splits.get(name, NO_SHARDS) for name in job.dataset.split_names},
        cache=_cache_facts(job, caches, listed),
    )
    derived = put_derived(root, version, segments[-1].shape.use, listed)
    digest = content_digest(listed, version.classes, version.cache)
    return replace(version, digest=digest, files=(*version.files, *derived))


def _cache_facts(
    job: Job, caches: Iterable[CacheDocument | None], listed: Iterable[Shard]
) -> CacheFacts | None:
    """Return the cache files of the splits with listed shards; None without a cache."""
    if job.dataset.cache is None:
        return None
    places = {(shard.segment, shard.split) for shard in listed}
    files = [
        file
        for file in chain.from_iterable(cache.files.values() for cache in caches if cache)
        if (file.segment, file.split) in places
    ]
    splits = {
        split: tuple(file for file in files if file.split == split)
        for split in sorted({file.split for file in files})
    }
    return CacheFacts(job.dataset.cache.kind, splits, cache_decoders(job.dataset))


def _tagged(job: Job, root: Store, version: VersionDocument) -> Published:
    try:
        move_tag(root, TAG, version.id, job.inputs, job.expected, job.conditions)
    except ConfigError as error:
        if error.code != "version.pinned":
            raise
        return Published(version, job.expected)
    return Published(version)


def publish_existing(job: Job, *, progress: Progress) -> Published:
    """Record that these inputs also lead to a version that is already published."""
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
