"""Facts and files that follow from the shards of a version."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from larder.config.shape import FormatUse
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import StoredFile
from larder.shards.formats import shard_format
from larder.shards.formats.format_interface import Split
from larder.shards.packing import brace_patterns
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.documents import SplitFacts, VersionDocument
from larder.versions.index import Shard

MAX_PATTERNS = 100
"""Maximum number of patterns of a split in a config."""


NO_SHARDS = SplitFacts(samples=0, shards=0, bytes=0, patterns=())


def listed_splits(shards: Iterable[Shard]) -> dict[str, SplitFacts]:
    """Add up listed shards, in the order of their segments, in each split."""
    splits: dict[str, SplitFacts] = {}
    for (segment, split), group in groupby(shards, key=lambda shard: shard[:2]):
        before, of_segment = splits.get(split, NO_SHARDS), list(group)
        names = brace_patterns([shard.name for shard in of_segment])
        patterns = (layout.shard_key(segment, split, name) for name in names)
        ranges = chain.from_iterable(shard.omitted for shard in of_segment)
        splits[split] = SplitFacts(
            samples=before.samples + sum(shard.samples for shard in of_segment),
            shards=before.shards + len(of_segment),
            bytes=before.bytes + sum(shard.bytes for shard in of_segment),
            patterns=(*before.patterns, *patterns),
            omitted=before.omitted + sum(stop - start for start, stop in ranges),
        )
    return splits


class Derived(NamedTuple):
    path: str
    role: str
    data: bytes


def put_derived(
    root: Store, version: VersionDocument, last: FormatUse, listed: Sequence[Shard]
) -> tuple[StoredFile, ...]:
    facts = []
    for path, role, data in derived_files(version, last, listed):
        with published_file_errors():
            root.put(path, data)
        facts.append(StoredFile(path, len(data), sha256_hex(data), role))
    return tuple(facts)


def derived_files(
    version: VersionDocument, last: FormatUse, listed: Sequence[Shard]
) -> Iterator[Derived]:
    """Make the files that follow from a version, which is otherwise complete.

    ``last`` is the format of its last segment; ``listed`` are its shards. A split with omitted
    samples in its shards gets no index file.
    """
    for split, facts in version.splits.items():
        if len(facts.patterns) > MAX_PATTERNS:
            paths = (shard.files[0].path for shard in listed if shard.split == split)
            data = "".join(f"{path}\n" for path in paths).encode()
            yield Derived(layout.list_key(version.id, split, sha256_hex(data)), "list", data)
    format_ = shard_format(*last)
    for name, facts in version.splits.items() if format_.split_indexes else ():
        if facts.shards and not facts.omitted:
            shards = [(shard.files[0], shard.samples) for shard in listed if shard.split == name]
            split_ = Split(version.dataset, name, shards, layout.SPLIT_INDEX_TO_ROOT)
            for index in format_.split_indexes:
                key = layout.split_index_key(version.id, index.kind, name)
                yield Derived(key, "readers", index.content(split_))
    if version.classes:
        numbers = {name: number for number, name in enumerate(version.classes)}
        data = (json.dumps(numbers, ensure_ascii=False, indent=0) + "\n").encode()
        yield Derived(layout.classes_key(version.id), "classes", data)
