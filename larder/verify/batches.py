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
from larder.verify.facts import SegmentFacts
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
    shards = segment.shards or []
    names = {each.files[0][:3] for each in (listed or {}).get(segment.id, shards)}
    first_row = 0
    next_id: Counter[str] = Counter()
    for shard in shards:
        split = shard.split
        files = tuple(ShardFile(file.name, file.bytes, file.sha256) for file in shard.files)
        if shard.files[0][:3] in names:
            indexes = segment.indexes.get((split, files[0].name), ())
            rows = first_row, next_id[split], shard.samples
            yield ShardToVerify(split, files[0].name, files, *rows, indexes)
        first_row += shard.samples
        next_id[split] += shard.samples


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
