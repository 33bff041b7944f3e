"""Index files that readers other than Larder's need to find samples in a shard, or all shards.

A format lists the kinds that it has (`larder.shards.formats.base.ShardFormat.indexes`). There is
one file of each kind for every shard. It is made of the shard's own index rows, as soon as the
shard is written: nothing is read again, and nothing is sorted. The indexes of a whole split belong
to a version, because only a version says which shards a split has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from larder.manifest.spool import Spool
from larder.names import Digest, FileName, PlainName

__all__ = ["IndexContent", "IndexFile", "ReaderIndex", "index_contents", "index_files"]


class ReaderIndex(Protocol):
    """A kind of index file. Instances have no state and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``dali``; unique among those of a format."""

    def file_name(self, shard: str) -> str:
        """The name of the file for a shard with this name."""

    def content(self, rows: Spool) -> Iterator[bytes] | None:
        """The content of the file, in pieces; joined, they depend on nothing but the rows.

        Has to work on columns, and on some thousand samples at a time: a shard may have a million.
        None if readers could not make sense of it, so that there is no such file.
        """


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file of one shard."""

    kind: PlainName
    name: FileName
    bytes: int
    sha256: Digest
    etag: str = field(default="", compare=False)


class IndexContent(NamedTuple):
    """An index file that is being made; its pieces are read once."""

    kind: str
    name: str
    pieces: Iterator[bytes]


def index_contents(
    indexes: Sequence[ReaderIndex], shard: str, rows: Spool
) -> Iterator[IndexContent]:
    """The index files of one shard, one after the other; none if it was not written."""
    for index in indexes if rows.num_rows else ():
        pieces = index.content(rows)
        if pieces is not None:
            yield IndexContent(index.kind, index.file_name(shard), pieces)


def index_files(
    indexes: Sequence[ReaderIndex], shard: str, rows: Spool
) -> Iterator[tuple[IndexFile, bytes]]:
    """The same with what describes them and their whole content, of which each is in memory."""
    for kind, name, pieces in index_contents(indexes, shard, rows):
        data = b"".join(pieces)
        yield IndexFile(kind, name, len(data), hashlib.sha256(data).hexdigest()), data


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
