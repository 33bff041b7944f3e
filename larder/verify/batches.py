"""Chooses the shards and cache files to read, and divides them into batches."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from larder.pipeline.job import ManifestRef
from larder.pipeline.listed import ListedShard
from larder.pipeline.shard import BATCH_ROWS
from larder.shards.model import ShardFile
from larder.store.base import ObjectInfo
from larder.verify.facts import SegmentFacts, ShardRow
from larder.verify.job import ShardToVerify, VerifyBatch, VerifyJob
from larder.versions import layout
from larder.versions.documents import CacheFile, VersionDocument


def batches_of(
    job: VerifyJob,
    version: VersionDocument,
    segments: Sequence[SegmentFacts],
    listed: Mapping[str, Sequence[ListedShard]] | None,
    infos: Mapping[str, ObjectInfo],
) -> tuple[list[VerifyBatch], int, int]:
    """What to read: all files, or a seeded choice, and those that the listing proves damaged.

    Returns:
        The batches, each of about ``runner.batch_bytes``, or one cache file; the number of files
        of shards and caches of the version, and their bytes.
    """
    shards = {segment.id: list(_listed_shards(segment, listed)) for segment in segments}
    splits = version.cache.splits.values() if version.cache else ()
    caches: list[CacheFile] = [file for split in splits for file in split]
    places = [(shard.split, _key(id_, shard)) for id_ in shards for shard in shards[id_]]
    wanted = chosen(job, places) | chosen(job, (("", file.path) for file in caches))

    def is_due(key: str, files: Iterable[tuple[str, int, str]]) -> bool:
        return key in wanted or not all(
            path in infos and infos[path].size_bytes == size_bytes for path, size_bytes, _ in files
        )

    batches: list[VerifyBatch] = []
    for segment in segments:
        samples = segment.file("samples")
        empty = VerifyBatch(
            segment.id,
            segment.document.shape.use if segment.document else None,
            None if samples is None else ManifestRef.of(samples),
            len(version.classes),
        )
        due = [
            shard
            for shard in shards[segment.id]
            if is_due(_key(segment.id, shard), shard.published(segment.id))
        ]
        batches += _shard_batches(job.cluster.runner.batch_bytes, empty, due)
        for cache in caches:
            batch = replace(empty, cache=cache)
            if cache.segment == segment.id and is_due(cache.path, batch.published()):
                batches.append(batch)
    every = [shard for segment in shards.values() for shard in segment]
    count = sum(shard.count for shard in every) + len(caches)
    size_bytes = sum(shard.bytes for shard in every) + sum(file.bytes for file in caches)
    return batches, count, size_bytes


def chosen(job: VerifyJob, places: Iterable[tuple[str, str]]) -> set[str]:
    """The keys to read: of each split the part that was asked for, at least one.

    The same seed chooses the same keys on every machine.
    """
    if job.sample_percent is None:
        return {key for _, key in places}
    by_split: dict[str, list[str]] = {}
    for split, key in places:
        by_split.setdefault(split, []).append(key)
    choice: set[str] = set()
    for keys in by_split.values():
        count = max(1, math.ceil(len(keys) * job.sample_percent / 100))
        keys.sort(key=lambda key: hashlib.sha256(f"{job.seed}\n{key}".encode()).digest())
        choice |= set(keys[:count])
    return choice


def _listed_shards(
    segment: SegmentFacts, listed: Mapping[str, Sequence[ListedShard]] | None
) -> Iterator[ShardToVerify]:
    """The shards of a segment that the version lists; all of them if that is not known."""
    names = None
    if listed is not None and segment.id in listed:
        names = {(shard.split, shard.files[0].name) for shard in listed[segment.id]}
    for shard in shards_of(segment.shards or ()):
        name = (shard.split, shard.name)
        if names is None or name in names:
            yield replace(shard, indexes=segment.indexes.get(name, ()))


def shards_of(rows: Iterable[ShardRow]) -> Iterator[ShardToVerify]:
    """All shards of a manifest of shards, with their places in the manifest of samples."""
    first_row = 0
    next_id: Counter[str] = Counter()
    shard: ShardToVerify | None = None
    for _, split, name, size_bytes, samples, sha256 in rows:
        file = ShardFile(name, size_bytes, sha256)
        if not samples and shard is not None:  # another file of the same shard
            shard = replace(shard, files=(*shard.files, file))
            continue
        if shard is not None:
            yield shard
        shard = ShardToVerify(split, name, (file,), first_row, next_id[split], samples)
        first_row += samples
        next_id[split] += samples
    if shard is not None:
        yield shard


def _key(segment: str, shard: ShardToVerify) -> str:
    return layout.shard_key(segment, shard.split, shard.name)


def _shard_batches(
    batch_bytes: int, empty: VerifyBatch, shards: Sequence[ShardToVerify]
) -> Iterator[VerifyBatch]:
    batch: list[ShardToVerify] = []
    size_bytes = rows = 0
    for shard in shards:
        size_bytes, rows = size_bytes + shard.bytes, rows + shard.rows
        if batch and (size_bytes > batch_bytes or rows > BATCH_ROWS):
            yield replace(empty, shards=tuple(batch))
            batch, size_bytes, rows = [], shard.bytes, shard.rows
        batch.append(shard)
    if batch:
        yield replace(empty, shards=tuple(batch))
