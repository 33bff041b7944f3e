"""The files of a version that follow from its document and its manifests of shards.

For programs without Larder: the number of each class, lists of shards where patterns are too many
for a config, and what some readers need to know of all shards of a split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from larder.config.formats import FormatUse
from larder.manifest.digest import sha256_hex
from larder.manifest.schemas import SHARDS
from larder.pipeline.job import ManifestRef
from larder.pipeline.listed import ListedShard, listed_shards
from larder.pipeline.manifests import read_ref
from larder.shards.formats import shard_format
from larder.shards.formats.base import SplitIndexed
from larder.shards.indexes.splits import Split, SplitShard
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import FileFacts, VersionDocument
from larder.versions.omitted import Omitted
from larder.versions.publish import own_file_errors

MAX_PATTERNS = 100
"""Maximum number of patterns of a split in a config."""

_Omitted = Mapping[tuple[str, str], Omitted]


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
        with own_file_errors():
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
    for name, facts in version.splits.items() if isinstance(format_, SplitIndexed) else ():
        if facts.shards and not facts.omitted:
            listed = _shards_of(root, version, name, omitted)
            shards = [SplitShard(key, one.files[0].bytes, one.samples) for key, one in listed]
            split_ = Split(version.dataset, name, shards, layout.SPLIT_INDEX_TO_ROOT)
            for index in format_.split_indexes:  # type: ignore[attr-defined]
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
        for shard in listed_shards(read_ref(root, ManifestRef.of(manifest), SHARDS), omitted):
            if shard.split == split:
                yield layout.shard_key(shard.segment, split, shard.files[0].name), shard
