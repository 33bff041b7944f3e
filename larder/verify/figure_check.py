"""Compares the figures of a version's documents with its manifests, once their bytes are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import DamageError
from larder.jobs.manifests import read_ref
from larder.manifest.schemas import SOURCES
from larder.manifest.sealed import StoredFile
from larder.samples.naming import LABEL_EXT
from larder.segments.derived_files import NO_SHARDS, listed_splits
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import CacheDocument, CacheFile, SegmentDocument, VersionDocument
from larder.versions.identity import content_digest, version_id
from larder.versions.index import BLOCK_ROWS, Shard
from larder.versions.omitted import Omitted
from larder.versions.rows import index_rows, open_index

_Problem = tuple[str, str]
"""A path, and the problem there."""


def _differences(split: str, recorded: Any, actual: Any) -> Iterator[str]:
    """Yield the figures of a split that differ from its manifests."""
    for name in (each.name for each in fields(recorded)):
        wanted, value = getattr(recorded, name), getattr(actual, name)
        if name == "patterns" and wanted != value:
            yield f"the patterns of split {split!r} are not the names of its shards"
        elif wanted != value:
            yield f"split {split!r} has {name} {wanted:,}; by the manifests, {value:,}"


def version_problems(
    version: VersionDocument,
    segments: Mapping[str, SegmentDocument],
    caches: Mapping[str, CacheDocument | None],
    omitted: Mapping[tuple[str, str], Omitted],
    listed: Mapping[str, Sequence[Shard]],
) -> Iterator[_Problem]:
    """Yield the contradictions between version.json and the rest of a version.

    ``segments``, ``caches`` and ``listed`` shards are by segment, in the order of the version. A
    damaged cache is None.
    """
    path = layout.version_key(version.id)
    files = tuple(chain.from_iterable(files_of_segment(version, segment) for segment in segments))
    if version.files[: len(files)] != files:
        yield path, "it does not name the manifests of its segments in their order"
    shards = [*chain.from_iterable(listed.values())]
    splits = listed_splits(shards)
    for split, recorded in version.splits.items():
        actual = splits.get(split, NO_SHARDS)
        yield from ((path, problem) for problem in _differences(split, recorded, actual))
    yield from ((path, problem) for problem in _cache_problems(version, segments, caches, listed))
    if content_digest(shards, version.classes, version.cache) != version.digest:
        yield path, "its content digest is not that of what it lists"
    if not any(file.role == "skipped" for file in version.files):
        actual_id = version_id(
            version.dataset,
            [(use.id, use.cache) for use in version.segments],
            omitted,
            classes=version.classes,
            split_names=version.splits,
            rule=version.split_rule,
        )
        if actual_id != version.id:
            yield path, f"its ID follows from other contents: those here have {actual_id}"


def files_of_segment(version: VersionDocument, segment: str) -> tuple[StoredFile, ...]:
    """Return the files of a segment that version.json names, without its cache."""
    prefix = layout.index_prefix(segment)
    return tuple(file for file in version.files if file.path.startswith(prefix))


def _cache_problems(
    version: VersionDocument,
    segments: Mapping[str, SegmentDocument],
    caches: Mapping[str, CacheDocument | None],
    listed: Mapping[str, Sequence[Shard]],
) -> Iterator[str]:
    if version.cache is None:
        return
    wanted: dict[str, list[CacheFile]] = {}
    for id_, segment in segments.items():
        splits = {shard.split for shard in listed[id_]}
        if (cache := caches.get(id_)) is None:
            return  # its document is damaged, or missing
        if cache.kind != version.cache.kind:
            yield f"its cache is {version.cache.kind}, that of {id_} is not"
        for split, file in cache.files.items():
            published = segment.splits.get(split)
            if published is None or file.records != published.samples:
                yield f"the cache file {file.path} does not have a record for each sample"
            if split in splits:
                wanted.setdefault(split, []).append(file)
    if {split: list(files) for split, files in version.cache.splits.items()} != wanted:
        yield "its cache files are not those of its segments"


def sources_problem(root: Store, rows: StoredFile | None, sources: StoredFile) -> str:
    """Say where the index of a segment differs from the record of its sources.

    Keys are in both, and in some formats nowhere else; so are lengths and checksums of parts.
    """
    if rows is None:
        return ""
    columns, row = ["key", "label", "parts"], 0
    try:
        with open_index(root, rows) as index:
            for batch in read_ref(root, sources, SOURCES, columns=columns, batch_rows=BLOCK_ROWS):
                wanted = np.arange(row, row + len(batch))
                row += len(batch)
                if row > index.count or _packed(index_rows(index, wanted)) != _packed(batch):
                    return f"its samples before {row:,} are not those of {sources.path}"
            if row != index.count:
                return f"it has {index.count:,} samples, {sources.path} has {row:,}"
    except DamageError as error:
        return error.message
    return ""


def _packed(rows: pa.RecordBatch) -> list[Any]:
    """Return keys, labels and parts of samples in columns, without the parts of labels."""
    lists, labels = rows.column("parts"), rows.column("label")
    parts = lists.flatten()
    owners = np.repeat(np.arange(len(rows)), pc.list_value_length(lists).to_numpy())
    labelled = labels.is_valid().to_numpy(zero_copy_only=False)[owners]
    named = pc.equal(parts.field("ext"), LABEL_EXT).to_numpy(zero_copy_only=False)
    kept = ~(named & labelled)
    columns = [parts.field(name).filter(pa.array(kept)) for name in ("ext", "length", "crc32c")]
    return [rows.column("key"), labels, pa.array(owners[kept]), *columns]
