"""What a version consists of: its shards, the files that it names, and what follows from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

import pyarrow as pa

from larder.config.shape import FormatUse
from larder.jobs.manifests import read_ref
from larder.manifest.digest import sha256_hex
from larder.manifest.schemas import INDEXES, SHARDS
from larder.shards.formats import shard_format
from larder.shards.indexes import Split, SplitShard
from larder.shards.packing import brace_patterns
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.documents import FileFacts, SplitFacts, VersionDocument
from larder.versions.identity import ShardIdentity
from larder.versions.omitted import Omitted

_NONE = Omitted.none()
_Omitted = Mapping[tuple[str, str], Omitted]


class _File(NamedTuple):
    """A row of `larder.manifest.schemas.SHARDS`."""

    segment: str
    split: str
    name: str
    bytes: int
    samples: int
    sha256: str


class ListedShard(NamedTuple):
    """A shard with samples that are not omitted; the first file has the shard's name.

    ``samples`` counts those that are not omitted; ``omitted`` are ranges of its rows, counted from
    its first sample.
    """

    segment: str
    split: str
    files: tuple[_File, ...]
    samples: int
    omitted: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def listed_shards(rows: Iterable[pa.RecordBatch], omitted: _Omitted) -> Iterator[ListedShard]:
    """The listed shards of one or more segments, in order.

    ``rows`` are of `larder.manifest.schemas.SHARDS`, all of a segment; ``omitted`` are the rows
    that the version omits, by segment and split.
    """
    first_rows: Counter[tuple[str, str]] = Counter()
    for shard in _shards(rows):
        place, samples = (shard[0].segment, shard[0].split), shard[0].samples
        first_row = first_rows[place]
        first_rows[place] += samples
        gone = omitted.get(place, _NONE)
        inside = gone.within(first_row, samples)
        live = samples - inside.count
        if live:
            ranges = inside.ranges.tolist()
            yield ListedShard(*place, shard, live, tuple((a, b) for a, b in ranges))


def _shards(rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[_File, ...]]:
    files = (
        _File(*row)
        for batch in rows
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    shard: list[_File] = []
    for file in files:
        if file.samples and shard:  # the first file of the next shard
            yield tuple(shard)
            shard = []
        shard.append(file)
    if shard:
        yield tuple(shard)


def shard_files(rows: Iterable[pa.RecordBatch], omitted: _Omitted) -> Iterator[ShardIdentity]:
    """What the content digest covers of the listed shards; see `listed_shards`."""
    for shard in listed_shards(rows, omitted):
        for number, file in enumerate(shard.files):
            gone = () if number else shard.omitted
            yield ShardIdentity(file.split, file.name, file.bytes, file.sha256, gone)


def listed_splits(shards: Iterable[ListedShard]) -> dict[str, SplitFacts]:
    """What listed shards of one segment add up to in each split."""
    splits: dict[str, SplitFacts] = {}
    for (segment, split), group in groupby(shards, key=lambda shard: shard[:2]):
        samples = size_bytes = omitted = 0
        names = []
        for shard in group:
            names.append(shard.files[0].name)
            samples += shard.samples
            size_bytes += shard.bytes
            omitted += sum(stop - start for start, stop in shard.omitted)
        splits[split] = SplitFacts(
            samples=samples,
            shards=len(names),
            bytes=size_bytes,
            patterns=tuple(
                layout.shard_key(segment, split, pattern) for pattern in brace_patterns(names)
            ),
            omitted=omitted,
        )
    return splits


def combined(facts: Iterable[SplitFacts]) -> SplitFacts:
    """One split of several segments, in order."""
    total = SplitFacts(0, 0, 0, ())
    for part in facts:
        total = SplitFacts(
            samples=total.samples + part.samples,
            shards=total.shards + part.shards,
            bytes=total.bytes + part.bytes,
            patterns=(*total.patterns, *part.patterns),
            omitted=total.omitted + part.omitted,
        )
    return total


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a version, with its path below the dataset's root.

    A document, which no other one describes, has no ``bytes`` and an empty ``sha256``. ``role`` is
    ``document``, ``cache``, ``shard``, ``index`` (of a shard, for other readers), or one of
    `larder.versions.documents.ROLES`; ``segment`` is empty for a file of the version itself.
    """

    path: str
    bytes: int | None
    sha256: str
    role: str
    segment: str = ""


def named_by_document(version: VersionDocument) -> Iterator[NamedFile]:
    """The files that version.json names itself, and the documents; nothing is read."""
    yield NamedFile(layout.version_key(version.id), None, "", "document")
    for use in version.segments:
        yield NamedFile(layout.segment_key(use.id), None, "", "document", use.id)
        if use.cache:
            yield NamedFile(layout.cache_key(use.id, use.cache), None, "", "document", use.id)
    for file in version.files:
        segment = file.path.split("/")[1] if file.path.startswith(layout.SEGMENTS_PREFIX) else ""
        yield NamedFile(file.path, file.bytes, file.sha256, file.role, segment)
    caches = version.cache.splits.values() if version.cache else ()
    for part in chain.from_iterable(caches):
        yield NamedFile(part.path, part.bytes, part.sha256, "cache", part.segment)


def segment_files(
    root: Store, files: Iterable[FileFacts], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[NamedFile]:
    """The shards of segments, and their indexes for other readers."""
    files = tuple(files)
    for manifest in (file.manifest for file in files if file.role == "shards"):
        for shard in listed_shards(read_ref(root, manifest, SHARDS), omitted):
            for segment, split, name, size_bytes, _, sha256 in shard.files:
                path = layout.shard_key(segment, split, name)
                yield NamedFile(path, size_bytes, sha256, "shard", segment)
    names = ["segment", "kind", "split", "name", "bytes", "sha256"]
    for manifest in (file.manifest for file in files if file.role == "indexes"):
        for batch in read_ref(root, manifest, INDEXES, columns=names):
            for *place, size_bytes, sha256 in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                path = layout.reader_index_key(*place)
                yield NamedFile(path, size_bytes, sha256, "index", place[0])


MAX_PATTERNS = 100
"""Maximum number of patterns of a split in a config."""


class Derived(NamedTuple):
    """A file that follows from the others: its path below the dataset's root, role and content."""

    path: str
    role: str
    data: bytes


def put_derived(
    root: Store, version: VersionDocument, last: FormatUse, omitted: _Omitted
) -> tuple[FileFacts, ...]:
    """Write the files that follow from a version, which is complete but for them.

    ``last`` is the format of its last segment; ``omitted`` are rows by segment and split.
    """
    facts = []
    for path, role, data in derived_files(root, version, last, omitted):
        with published_file_errors():
            root.put(path, data)
        facts.append(FileFacts(path, len(data), sha256_hex(data), role))
    return tuple(facts)


def derived_files(
    root: Store, version: VersionDocument, last: FormatUse, omitted: _Omitted
) -> Iterator[Derived]:
    """The files that follow from a version; the arguments are those of `put_derived`.

    Index files are of splits whose shards have no omitted samples.
    """
    for split, facts in version.splits.items():
        if len(facts.patterns) > MAX_PATTERNS:
            keys = (key for key, _ in _shards_of(root, version, split, omitted))
            data = "".join(f"{key}\n" for key in keys).encode()
            yield Derived(layout.list_key(version.id, split, sha256_hex(data)), "list", data)
    format_ = shard_format(*last)
    for name, facts in version.splits.items() if format_.split_indexes else ():
        if facts.shards and not facts.omitted:
            listed = _shards_of(root, version, name, omitted)
            shards = [SplitShard(key, one.files[0].bytes, one.samples) for key, one in listed]
            split_ = Split(version.dataset, name, shards, layout.SPLIT_INDEX_TO_ROOT)
            for index in format_.split_indexes:
                key = layout.split_index_key(version.id, index.kind, name)
                yield Derived(key, "readers", index.content(split_))
    if version.classes:
        numbers = {name: number for number, name in enumerate(version.classes)}
        data = (json.dumps(numbers, ensure_ascii=False, indent=0) + "\n").encode()
        yield Derived(layout.classes_key(version.id), "classes", data)


def _shards_of(
    root: Store, version: VersionDocument, split: str, omitted: _Omitted
) -> Iterator[tuple[str, ListedShard]]:
    """The listed shards of one split of a version, in order, each with its key."""
    for manifest in version.files_of("shards"):
        for shard in listed_shards(read_ref(root, manifest.manifest, SHARDS), omitted):
            if shard.split == split:
                yield layout.shard_key(shard.segment, split, shard.files[0].name), shard
