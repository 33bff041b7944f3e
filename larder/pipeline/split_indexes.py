"""The index files of a version's splits, for readers that need to know all shards of a split."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from larder.pipeline.job import UsedSegment
from larder.pipeline.lists import shards_of_split
from larder.shards.formats import shard_format
from larder.shards.formats.base import SplitIndexed
from larder.shards.indexes.splits import Split, SplitShard
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import FileFacts, VersionDocument
from larder.versions.omitted import Omitted
from larder.versions.publish import own_file_errors

__all__ = ["put_split_indexes"]


def put_split_indexes(
    root: Store,
    version: VersionDocument,
    segments: Sequence[UsedSegment],
    omitted: Mapping[tuple[str, str], Omitted],
) -> tuple[FileFacts, ...]:
    """Write the index files of all splits whose shards have no omitted samples.

    Args:
        root: The dataset's root.
        version: The version, complete but for these files.
        segments: Its segments.
        omitted: The rows that it omits, by segment and split.
    """
    format_ = shard_format(*segments[-1].format)
    if not isinstance(format_, SplitIndexed):
        return ()
    found = []
    for name, facts in version.splits.items():
        if facts.shards and not facts.omitted:
            listed = shards_of_split(root, name, segments, omitted)
            shards = [SplitShard(key, one.files[0].bytes, one.samples) for key, one in listed]
            split = Split(version.dataset, name, shards, layout.SPLIT_INDEX_TO_ROOT)
            for index in format_.split_indexes:
                key = layout.split_index_key(version.id, index.kind, name)
                data = index.content(split)
                with own_file_errors():
                    root.put(key, data)
                sha256 = hashlib.sha256(data).hexdigest()
                found.append(FileFacts(key, len(data), sha256, role="readers"))
    return tuple(found)
