"""The index files that other readers of shards need: one of each kind for every shard.

The task that writes a shard writes its index files next. The index step lists them, and makes
missing and altered files again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

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
    """Write the index files of a shard; ``rows`` are by `larder.shards.model.ROWS` at least."""
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


class ReaderIndexes:
    """The index files of a segment's shards, listed once."""

    def __init__(
        self, root: Store, segment: str, shard_format: ShardFormat, *, writes: bool
    ) -> None:
        self._root = root
        self._segment = segment
        self._format = shard_format
        self._writes = writes
        self._kinds = {index.kind for index in shard_format.indexes}
        prefix = layout.index_prefix(segment)
        self._infos = {info.key: info for info in listed(root, prefix)} if self._kinds else {}

    def of(self, receipt: Receipt) -> tuple[WrittenFile, ...]:
        """Return the index files of a shard; missing files are made again if it ``writes``."""
        shard, kinds = receipt.shard, {file.kind for file in receipt.shard.indexes}
        if kinds == self._kinds and all(self._exists(shard.split, each) for each in shard.indexes):
            return shard.indexes
        rows = Spool.of(receipt.samples(), ROWS)
        if not self._writes:
            return tuple(file for file, _ in index_files(self._format.indexes, shard.name, rows))
        place = self._root, self._segment, shard.split, shard.name
        return put_indexes(*place, self._format, rows)

    def _exists(self, split: str, file: WrittenFile) -> bool:
        key = layout.reader_index_key(self._segment, file.kind, split, file.name)
        info = self._infos.get(key)
        return info is not None and (info.size_bytes, info.etag) == (file.bytes, file.etag)
