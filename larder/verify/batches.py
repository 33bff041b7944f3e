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
    shards: Mapping[str, Sequence[ListedShard]] | None,
    there: Mapping[str, ObjectInfo],
) -> tuple[list[VerifyBatch], int, int]:
    """What to read: all files, or a seeded choice, and those that the listing proves damaged.

    Returns:
        The batches, each of about ``runner.batch_bytes``, or one cache file; the number of files
        of shards and caches of the version, and their bytes.
    """
    own = {segment.id: list(_own_shards(segment, shards)) for segment in segments}
    caches = list(version.cache.splits.values()) if version.cache else []
    files: list[CacheFile] = [file for split in caches for file in split]
    places = [(shard.split, _key(segment, shard)) for segment in own for shard in own[segment]]
    wanted = chosen(job, places) | chosen(job, (("", file.path) for file in files))
    batches: list[VerifyBatch] = []
    for segment in segments:
        picked = [
            shard
            for shard in own[segment.id]
            if _key(segment.id, shard) in wanted or not _stands(segment.id, shard, there)
        ]
        batches += _shard_batches(job, version, segment, picked)
        for file in files:
            if file.segment == segment.id and (
                file.path in wanted or not _has_size(there, file.path, file.bytes)
            ):
                batches.append(_cache_batch(version, segment, file))
    all_shards = [shard for found in own.values() for shard in found]
    count = sum(shard.count for shard in all_shards) + len(files)
    size_bytes = sum(shard.bytes for shard in all_shards) + sum(file.bytes for file in files)
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
    found: set[str] = set()
    for keys in by_split.values():
        count = max(1, math.ceil(len(keys) * job.sample_percent / 100))
        keys.sort(key=lambda key: hashlib.sha256(f"{job.seed}\n{key}".encode()).digest())
        found |= set(keys[:count])
    return found


def _own_shards(
    segment: SegmentFacts, listed: Mapping[str, Sequence[ListedShard]] | None
) -> Iterator[ShardToVerify]:
    """The shards of a segment that the version lists; all of them if that is not known."""
    every = [
        replace(shard, indexes=segment.indexes.get((shard.split, shard.name), ()))
        for shard in shards_of(segment.shards or ())
    ]
    if listed is None or segment.id not in listed:
        yield from every
        return
    names = {(shard.split, shard.files[0].name) for shard in listed[segment.id]}
    yield from (shard for shard in every if (shard.split, shard.name) in names)


def shards_of(rows: Iterable[ShardRow]) -> Iterator[ShardToVerify]:
    """All shards of a manifest of shards, with their places in the manifest of samples."""
    first_row = 0
    next_id: Counter[str] = Counter()
    held: ShardToVerify | None = None
    for _, split, name, size_bytes, samples, sha256 in rows:
        file = ShardFile(name, size_bytes, sha256)
        if not samples and held is not None:  # another file of the same shard
            held = replace(held, files=(*held.files, file))
            continue
        if held is not None:
            yield held
        held = ShardToVerify(split, name, (file,), first_row, next_id[split], samples)
        first_row += samples
        next_id[split] += samples
    if held is not None:
        yield held


def _key(segment: str, shard: ShardToVerify) -> str:
    return layout.shard_key(segment, shard.split, shard.name)


def _stands(segment: str, shard: ShardToVerify, there: Mapping[str, ObjectInfo]) -> bool:
    return all(
        _has_size(there, layout.shard_key(segment, shard.split, file.name), file.bytes)
        for file in shard.files
    ) and all(
        _has_size(
            there, layout.reader_index_key(segment, file.kind, shard.split, file.name), file.bytes
        )
        for file in shard.indexes
    )


def _has_size(there: Mapping[str, ObjectInfo], key: str, size_bytes: int) -> bool:
    return key in there and there[key].size_bytes == size_bytes


def _shard_batches(
    job: VerifyJob, version: VersionDocument, segment: SegmentFacts, shards: Sequence[ShardToVerify]
) -> Iterator[VerifyBatch]:
    empty = VerifyBatch(
        segment.id,
        segment.document.shape.use if segment.document else None,
        _samples(segment),
        len(version.classes),
    )
    held: list[ShardToVerify] = []
    size_bytes = rows = 0
    for shard in shards:
        size_bytes, rows = size_bytes + shard.bytes, rows + shard.rows
        if held and (size_bytes > job.cluster.runner.batch_bytes or rows > BATCH_ROWS):
            yield replace(empty, shards=tuple(held))
            held, size_bytes, rows = [], shard.bytes, shard.rows
        held.append(shard)
    if held:
        yield replace(empty, shards=tuple(held))


def _cache_batch(version: VersionDocument, segment: SegmentFacts, file: CacheFile) -> VerifyBatch:
    first_row = 0
    for _, split, _, _, samples, _ in segment.shards or ():
        if split == file.split:
            break
        first_row += samples
    samples_ref = _samples(segment) if segment.shards is not None else None
    return VerifyBatch(
        segment.id, None, samples_ref, len(version.classes), cache=file, first_row=first_row
    )


def _samples(segment: SegmentFacts) -> ManifestRef | None:
    file = segment.file("samples")
    return None if file is None else ManifestRef.of(file)
