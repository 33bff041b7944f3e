"""What a version consists of: its shards, the files that it names, and what follows from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

from larder.config.shape import FormatUse
from larder.manifest.digest import sha256_hex
from larder.shards.formats import shard_format
from larder.shards.indexes import Split, SplitShard
from larder.shards.packing import brace_patterns
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.documents import FileFacts, SplitFacts, VersionDocument
from larder.versions.identity import ShardIdentity
from larder.versions.index import ListedShard, listed_shards, read_shards
from larder.versions.omitted import Omitted


def read_listed(
    root: Store, files: Iterable[FileFacts], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[ListedShard]:
    """The listed shards of segments, in order, given what they consist of; see `listed_shards`."""
    for file in files:
        if file.role == "rows":
            segment = file.path.split("/")[1]
            yield from listed_shards(segment, read_shards(root, file), omitted)


def shard_identities(shards: Iterable[ListedShard]) -> Iterator[ShardIdentity]:
    """What the content digest covers of listed shards."""
    for shard in shards:
        for number, file in enumerate(shard.files):
            gone = () if number else shard.omitted
            yield ShardIdentity(shard.split, *file, gone)


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
    """The listed shards of segments, and their indexes for other readers."""
    for shard in read_listed(root, files, omitted):
        for name, size_bytes, sha256 in shard.files:
            path = layout.shard_key(shard.segment, shard.split, name)
            yield NamedFile(path, size_bytes, sha256, "shard", shard.segment)
        for index in shard.indexes:
            path = layout.reader_index_key(shard.segment, index.kind, shard.split, index.name)
            yield NamedFile(path, index.bytes, index.sha256, "index", shard.segment)


MAX_PATTERNS = 100
"""Maximum number of patterns of a split in a config."""


class Derived(NamedTuple):
    """A file that follows from the others: its path below the dataset's root, role and content."""

    path: str
    role: str
    data: bytes


def put_derived(
    root: Store, version: VersionDocument, last: FormatUse, listed: Sequence[ListedShard]
) -> tuple[FileFacts, ...]:
    """Write the files that follow from a version, which is complete but for them.

    ``last`` is the format of its last segment; ``listed`` are its shards.
    """
    facts = []
    for path, role, data in derived_files(version, last, listed):
        with published_file_errors():
            root.put(path, data)
        facts.append(FileFacts(path, len(data), sha256_hex(data), role))
    return tuple(facts)


def derived_files(
    version: VersionDocument, last: FormatUse, listed: Sequence[ListedShard]
) -> Iterator[Derived]:
    """The files that follow from a version; the arguments are those of `put_derived`.

    Index files are of splits whose shards have no omitted samples.
    """
    for split, facts in version.splits.items():
        if len(facts.patterns) > MAX_PATTERNS:
            keys = (key for key, _ in _shards_of(split, listed))
            data = "".join(f"{key}\n" for key in keys).encode()
            yield Derived(layout.list_key(version.id, split, sha256_hex(data)), "list", data)
    format_ = shard_format(*last)
    for name, facts in version.splits.items() if format_.split_indexes else ():
        if facts.shards and not facts.omitted:
            of_split = _shards_of(name, listed)
            shards = [SplitShard(key, one.files[0].bytes, one.samples) for key, one in of_split]
            split_ = Split(version.dataset, name, shards, layout.SPLIT_INDEX_TO_ROOT)
            for index in format_.split_indexes:
                key = layout.split_index_key(version.id, index.kind, name)
                yield Derived(key, "readers", index.content(split_))
    if version.classes:
        numbers = {name: number for number, name in enumerate(version.classes)}
        data = (json.dumps(numbers, ensure_ascii=False, indent=0) + "\n").encode()
        yield Derived(layout.classes_key(version.id), "classes", data)


def _shards_of(split: str, listed: Iterable[ListedShard]) -> Iterator[tuple[str, ListedShard]]:
    """The shards of one split, in order, each with its key."""
    for shard in listed:
        if shard.split == split:
            yield layout.shard_key(shard.segment, split, shard.files[0].name), shard
