"""Index files of a whole split, for readers that need to know all shards with their samples.

They belong to a version, because only a version says which shards a split has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from larder.manifest.digest import canonical_json


class SplitShard(NamedTuple):
    """A shard of a split; ``key`` is that of its first file below the dataset's root."""

    key: str
    bytes: int
    samples: int


class Split(NamedTuple):
    """A split of a version, all samples of whose shards belong to it.

    ``to_root`` leads from the folder of the index file to the dataset's root: ``../../..``.
    """

    dataset: str
    name: str
    shards: Sequence[SplitShard]
    to_root: str


class SplitIndex(Protocol):
    """A kind of index file. Instances do not change and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``wids``; unique among those of a format."""

    def content(self, split: Split) -> bytes:
        """The content of the file, which is JSON; has to depend on nothing but the split."""


class WidsIndex:
    """The shard index that ``wids`` of webdataset reads, version 1; URLs are relative to it."""

    kind = "wids"

    def content(self, split: Split) -> bytes:
        """The JSON document. It has no MD5 sums, which wids does not need."""
        shards = [
            {
                "url": f"{split.to_root}/{shard.key}",
                "nsamples": shard.samples,
                "filesize": shard.bytes,
            }
            for shard in split.shards
        ]
        document = {
            "__kind__": "wids-shard-index-v1",
            "wids_version": 1,
            "name": f"{split.dataset}-{split.name}",
            "shardlist": shards,
        }
        return canonical_json(document) + b"\n"
