"""The index files that other readers of shards need: one of each kind for every shard.

The task that writes a shard writes its index files next. The index step lists them. It makes
missing and altered files again, and files for shards that an earlier release wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from larder.manifest.spool import Spool
from larder.segments.shard_receipts import Receipt
from larder.shards.formats.format_interface import ShardFormat, index_contents, index_files
from larder.shards.model import ROWS, WrittenFile
from larder.store.base import Store
from larder.store.own_files import listed
from larder.versions import layout


def put_indexes(
    root: Store, segment: str, split: str, shard: str, shard_format: ShardFormat, rows: Spool
) -> tuple[WrittenFile, ...]:
    """Write the index files of a shard.

    ``rows`` have at least the columns of `larder.shards.model.ROWS`.
    """
    contents = index_contents(shard_format.indexes, shard, rows)
    return tuple(_put(root, segment, split, *content) for content in contents)


def _put(
    root: Store, segment: str, split: str, kind: str, name: str, pieces: Iterable[bytes]
) -> WrittenFile:
    digest, size_bytes = hashlib.sha256(), 0
    key = layout.reader_index_key(segment, kind, split, name)
    with root.writer(key) as writer:
        for piece in pieces:
            writer.write(piece)
            digest.update(piece)
            size_bytes += len(piece)
        etag = writer.commit().etag
    return WrittenFile(name, size_bytes, digest.hexdigest(), etag, kind)


PutIndexes = Callable[[Store, str, str, str, ShardFormat, Spool], tuple[WrittenFile, ...]]
"""The type of `put_indexes` and `described_indexes`."""


def described_indexes(
    root: Store, segment: str, split: str, shard: str, shard_format: ShardFormat, rows: Spool
) -> tuple[WrittenFile, ...]:
    """Describe the files that `put_indexes` would write; nothing is written."""
    del root, segment, split
    return tuple(file for file, _ in index_files(shard_format.indexes, shard, rows))


class ReaderIndexes:
    """The index files of a segment's shards, listed once.

    ``put`` is called for a shard that lacks an index file, and returns all index files of the
    shard.
    """

    def __init__(
        self, root: Store, segment: str, shard_format: ShardFormat, put: PutIndexes
    ) -> None:
        self._root = root
        self._segment = segment
        self._format = shard_format
        self._put = put
        self._kinds = {index.kind for index in shard_format.indexes}
        prefix = layout.index_prefix(segment)
        self._infos = {info.key: info for info in listed(root, prefix)} if self._kinds else {}

    def of(self, receipt: Receipt) -> tuple[WrittenFile, ...]:
        """Return the index files of a shard; missing files are made first."""
        shard = receipt.shard
        files = shard.indexes
        if not all(self._exists(shard.split, file) for file in files) or (
            {file.kind for file in files} != self._kinds
        ):
            rows = Spool.of(receipt.samples(), ROWS)
            files = self._put(
                self._root, self._segment, shard.split, shard.name, self._format, rows
            )
        return files

    def _exists(self, split: str, file: WrittenFile) -> bool:
        key = layout.reader_index_key(self._segment, file.kind, split, file.name)
        info = self._infos.get(key)
        return info is not None and (info.size_bytes, info.etag) == (file.bytes, file.etag)
