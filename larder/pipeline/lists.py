"""The lists of a version: the shards of a split whose patterns are too many for a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from larder.disk import sha256_file
from larder.manifest.schemas import SHARDS
from larder.pipeline.job import UsedSegment, scratch
from larder.pipeline.listed import ListedShard, listed_shards
from larder.pipeline.manifests import read_ref
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import FileFacts, VersionDocument
from larder.versions.omitted import Omitted
from larder.versions.publish import own_file_errors

__all__ = ["MAX_PATTERNS", "put_lists", "shards_of_split"]

MAX_PATTERNS = 100
"""Maximum number of patterns of a split in a config."""


def put_lists(
    root: Store,
    version: VersionDocument,
    segments: Sequence[UsedSegment],
    omitted: Mapping[tuple[str, str], Omitted],
) -> tuple[FileFacts, ...]:
    """Write the lists of a version: the path of each shard on a line, below the dataset's root.

    Args:
        root: The dataset's root.
        version: The version, complete but for its lists.
        segments: Its segments.
        omitted: The rows that it omits, by segment and split.

    Returns:
        One file for each split with too many patterns.
    """
    return tuple(
        _put_list(root, version, split, segments, omitted)
        for split, facts in version.splits.items()
        if len(facts.patterns) > MAX_PATTERNS
    )


def _put_list(
    root: Store,
    version: VersionDocument,
    split: str,
    segments: Sequence[UsedSegment],
    omitted: Mapping[tuple[str, str], Omitted],
) -> FileFacts:
    with scratch() as folder:
        path = folder / "list.txt"
        with path.open("w", encoding="utf-8", newline="\n") as lines:
            for key, _ in shards_of_split(root, split, segments, omitted):
                lines.write(f"{key}\n")
        sha256, size_bytes = sha256_file(path), path.stat().st_size
        key = layout.list_key(version.id, split, sha256)
        with own_file_errors():
            root.upload(key, path)
    return FileFacts(path=key, bytes=size_bytes, sha256=sha256, role="list")


def shards_of_split(
    root: Store,
    split: str,
    segments: Sequence[UsedSegment],
    omitted: Mapping[tuple[str, str], Omitted],
) -> Iterator[tuple[str, ListedShard]]:
    """The listed shards of one split of a version, in order, each with its key.

    Args:
        root: The dataset's root.
        split: The split.
        segments: The segments of the version.
        omitted: The rows that it omits, by segment and split.
    """
    for segment in segments:
        for shard in listed_shards(read_ref(root, segment.file("shards"), SHARDS), omitted):
            if shard.split == split:
                yield layout.shard_key(shard.segment, split, shard.files[0].name), shard
