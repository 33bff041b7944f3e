"""Index files for readers other than Larder's, to find samples in a shard, or all shards.

A format lists its kinds (`larder.shards.formats.format_interface.ShardFormat.indexes`). Every shard
has one file of each kind. The file is made of the shard's own index rows as soon as the shard is
written: nothing is read again or sorted. The indexes of a whole split belong to a version, because
only a version defines the shards of a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from larder.manifest.sealed import StoredFile
from larder.manifest.spool import Spool
from larder.shards.model import WrittenFile


class ReaderIndex(Protocol):
    """A kind of index file. Instances have no state and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``dali``; unique in a format."""

    def file_name(self, shard: str) -> str:
        """Return the name of the index file for a shard."""

    def content(self, rows: Spool) -> Iterator[bytes] | None:
        """Yield the content in pieces; the joined content must depend on the rows alone.

        Work on columns, and on some thousand samples at a time: a shard may have a million. Return
        None if readers could not use the file; then no file is written.
        """


class IndexContent(NamedTuple):
    """An index file being made; the pieces can be read once."""

    kind: str
    name: str
    pieces: Iterator[bytes]


def index_contents(
    indexes: Sequence[ReaderIndex], shard: str, rows: Spool
) -> Iterator[IndexContent]:
    """Yield the index files of one shard; nothing if the shard was not written."""
    for index in indexes if rows.num_rows else ():
        pieces = index.content(rows)
        if pieces is not None:
            yield IndexContent(index.kind, index.file_name(shard), pieces)


def index_files(
    indexes: Sequence[ReaderIndex], shard: str, rows: Spool
) -> Iterator[tuple[WrittenFile, bytes]]:
    """Like `index_contents`, but yield each description with its full content, held in memory."""
    for kind, name, pieces in index_contents(indexes, shard, rows):
        data = b"".join(pieces)
        yield WrittenFile(name, len(data), hashlib.sha256(data).hexdigest(), kind=kind), data


class Split(NamedTuple):
    """A split of a version; all samples of its shards belong to the split.

    ``shards`` are the first file of each shard, and its number of samples. ``to_root`` leads from
    the folder of the index file to the dataset's root: ``../../..``.
    """

    dataset: str
    name: str
    shards: Sequence[tuple[StoredFile, int]]
    to_root: str


class SplitIndex(Protocol):
    """A kind of index file. Instances do not change and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``wids``; unique in a format."""

    def content(self, split: Split) -> bytes:
        """Return the file's JSON, which must depend on the split alone."""
