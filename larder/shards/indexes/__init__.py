"""Index files that readers other than Larder's need to find samples in a shard.

A format lists the kinds that it has (`larder.shards.formats.base.ShardFormat.indexes`). There is
one file of each kind for every shard. It is made of the shard's own index rows, as soon as the
shard is written: nothing is read again, and nothing is sorted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

__all__ = ["IndexFile", "ReaderIndex", "index_files"]


class ReaderIndex(Protocol):
    """A kind of index file. Instances have no state and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``dali``; unique among those of a format."""

    def file_name(self, shard: str) -> str:
        """The name of the file for a shard with this name."""

    def content(self, rows: pa.RecordBatch) -> bytes | None:
        """The content of the file; has to depend on nothing but the rows.

        Has to work on columns, not row by row: a shard may have hundreds of thousands of samples.

        Args:
            rows: All samples of the shard, of schema `larder.shards.model.ROWS`.

        Returns:
            Its bytes; None if readers could not make sense of it, so that there is no such file.
        """


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file of one shard.

    Attributes:
        kind: Its kind.
        name: Its name.
        bytes: Its length, bytes.
        sha256: Its hex digest.
        etag: The etag of the object, empty if it was not written yet. It is not compared.
    """

    kind: str
    name: str
    bytes: int
    sha256: str
    etag: str = field(default="", compare=False)


def index_files(
    indexes: Sequence[ReaderIndex], shard: str, rows: pa.RecordBatch
) -> Iterator[tuple[IndexFile, bytes]]:
    """The index files of one shard, with their content.

    Args:
        indexes: Those of its format.
        shard: Its name.
        rows: Its samples, with at least the columns of `larder.shards.model.ROWS`; none if it was
            not written.
    """
    if not rows.num_rows:
        return
    for index in indexes:
        data = index.content(rows)
        if data is not None:
            sha256 = hashlib.sha256(data).hexdigest()
            yield IndexFile(index.kind, index.file_name(shard), len(data), sha256), data
