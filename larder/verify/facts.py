"""Compares the figures of a version's documents with its manifests, once their bytes are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from larder.errors import DamageError
from larder.jobs.manifests import fetched, read_ref
from larder.manifest.files import read_manifest
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import SAMPLES, SKIPPED
from larder.pipeline.contents import ListedShard, combined, listed_splits
from larder.shards.formats import shard_format
from larder.shards.indexes import IndexFile
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    CacheFile,
    FileFacts,
    SegmentDocument,
    SplitFacts,
    VersionDocument,
)
from larder.versions.identity import ShardIdentity, content_digest, version_id
from larder.versions.omitted import Omitted

_Problem = tuple[str, str]
"""A path, and what is wrong there."""


@dataclass
class SegmentFacts:
    """What is known of a segment of a version; None is what is damaged, or a cache not used.

    ``files`` are the manifests that version.json names, ``damaged`` the paths of those that are,
    and ``indexes`` the index files for other readers, by split and shard.
    """

    id: str
    document: SegmentDocument | None
    files: tuple[FileFacts, ...]
    damaged: frozenset[str]
    shards: list[ListedShard] | None = None
    indexes: dict[tuple[str, str], tuple[IndexFile, ...]] = field(default_factory=dict)
    cache: CacheDocument | None = None

    def file(self, role: str) -> FileFacts | None:
        """The manifest with that role; None if there is none that is not damaged."""
        return next(
            (file for file in self.files if file.role == role and file.path not in self.damaged),
            None,
        )

    def rows(
        self, root: Store, role: str, schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the manifest with that role; none if there is none that is not damaged."""
        file = self.file(role)
        if file is not None:
            yield from read_ref(root, ManifestRef.of(file), schema, columns=columns)


def segment_problems(root: Store, facts: SegmentFacts) -> Iterator[_Problem]:
    document, shards = facts.document, facts.shards
    if document is None or shards is None:
        return
    path = layout.segment_key(facts.id)
    if {shard.segment for shard in shards} - {facts.id}:
        yield path, "its manifest of shards is that of another segment"
    splits = listed_splits(shards)
    if unknown := sorted(splits.keys() - document.splits.keys()):
        yield path, f"its manifest of shards has a split {unknown[0]!r}, which it does not name"
    first_row = 0
    in_order = sorted(
        document.splits.items(), key=lambda item: (item[1].first_row, item[1].samples)
    )
    for split, said in in_order:
        total = splits.get(split, SplitFacts(0, 0, 0, ()))
        actual = replace(
            said, samples=total.samples, shards=total.shards, bytes=total.bytes, first_row=first_row
        )
        first_row += total.samples
        yield from ((path, problem) for problem in _differences(split, said, actual))
        names = [shard.files[0].name for shard in shards if shard.split == split]
        if problem := _names_problem(document, split, names):
            yield path, problem
    samples = facts.file("samples")
    if samples is not None and not _has_rows(root, samples, first_row):
        yield path, f"its manifest of samples does not have {first_row:,} rows"
    if facts.file("skipped"):
        count = sum(batch.num_rows for batch in facts.rows(root, "skipped", SKIPPED, ["split"]))
        if count != document.skipped:
            yield path, f"it counts {document.skipped:,} skipped samples, not {count:,}"


def _differences(split: str, said: Any, actual: Any) -> Iterator[str]:
    """The figures of a split that differ from those of its manifests."""
    for name in (each.name for each in fields(said)):
        wanted, value = getattr(said, name), getattr(actual, name)
        if name == "patterns" and wanted != value:
            yield f"the patterns of split {split!r} are not the names of its shards"
        elif wanted != value:
            yield f"split {split!r} has {name} {wanted:,}; by the manifests, {value:,}"


def _names_problem(document: SegmentDocument, split: str, names: Sequence[str]) -> str:
    """Whether shards have the names that they may have, in order."""
    said = document.splits[split]
    format_ = shard_format(*document.shape.use)
    count = said.end_shard if format_.counted else 0
    planned = (
        format_.shard_name(f"{document.dataset}-{split}", number, count)
        for number in range(said.first_shard, said.end_shard)
    )
    wrong = next((name for name in names if name not in planned), None)
    return f"a shard of split {split!r} has the name {wrong}" if wrong else ""


def _has_rows(root: Store, file: FileFacts, rows: int) -> bool:
    with fetched(root, ManifestRef.of(file)) as path:
        try:
            more = read_manifest(path, SAMPLES, columns=["id"], first_row=rows)
            return next(more, None) is None
        except DamageError:
            return False


def version_problems(
    version: VersionDocument,
    segments: Sequence[SegmentFacts],
    omitted: Mapping[tuple[str, str], Omitted],
    listed: Mapping[str, Sequence[ListedShard]],
) -> Iterator[_Problem]:
    """What does not agree between version.json and the rest."""
    path = layout.version_key(version.id)
    files = tuple(chain.from_iterable(segment.files for segment in segments))
    if version.files[: len(files)] != files:
        yield path, "it does not name the manifests of its segments in their order"
    facts = [listed_splits(listed[segment.id]) for segment in segments]
    for split, said in version.splits.items():
        actual = combined(splits[split] for splits in facts if split in splits)
        yield from ((path, problem) for problem in _differences(split, said, actual))
    yield from ((path, problem) for problem in _cache_problems(version, segments, facts))
    identities = [
        ShardIdentity(file.split, file.name, file.bytes, file.sha256, () if n else shard.omitted)
        for segment in segments
        for shard in listed[segment.id]
        for n, file in enumerate(shard.files)
    ]
    if content_digest(identities, version.classes, version.cache) != version.digest:
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


def _cache_problems(
    version: VersionDocument,
    segments: Sequence[SegmentFacts],
    facts: Sequence[Mapping[str, SplitFacts]],
) -> Iterator[str]:
    if version.cache is None:
        return
    wanted: dict[str, list[CacheFile]] = {}
    for segment, splits in zip(segments, facts, strict=True):
        if segment.cache is None:
            return  # its document is damaged, or missing
        if segment.cache.kind != version.cache.kind:
            yield f"its cache is {version.cache.kind}, that of {segment.id} is not"
        for split, file in segment.cache.files.items():
            if segment.document and file.records != segment.document.splits[split].samples:
                yield f"the cache file {file.path} does not have a record for each sample"
            if split in splits:
                wanted.setdefault(split, []).append(file)
    if {split: list(files) for split, files in version.cache.splits.items()} != wanted:
        yield "its cache files are not those of its segments"
