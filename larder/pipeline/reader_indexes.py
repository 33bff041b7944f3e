"""The index files that other readers of shards need: one of each kind for every shard.

The task that writes a shard writes them next. The index step lists them, and makes again those that
are missing or altered, or of shards that an earlier release wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from larder.jobs.manifests import read_ref
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import INDEXES, SAMPLES
from larder.manifest.spool import Spool
from larder.pipeline.receipts import Shard
from larder.shards.formats.base import ShardFormat
from larder.shards.indexes import IndexContent, IndexFile, index_contents, index_files
from larder.store.base import Store
from larder.store.own_files import listed
from larder.versions import layout


class Indexed(NamedTuple):
    """A finished shard; its rows of schema SAMPLES begin at ``first_row`` of ``rows``."""

    shard: Shard
    rows: ManifestRef
    first_row: int


def put_indexes(
    root: Store, segment: str, split: str, shard: str, shard_format: ShardFormat, rows: Spool
) -> tuple[IndexFile, ...]:
    """Write the index files of a shard.

    Its samples have at least the columns of `larder.shards.model.ROWS`.
    """
    contents = index_contents(shard_format.indexes, shard, rows)
    return tuple(_put(root, segment, split, content) for content in contents)


def _put(root: Store, segment: str, split: str, content: IndexContent) -> IndexFile:
    digest, size_bytes = hashlib.sha256(), 0
    key = layout.reader_index_key(segment, content.kind, split, content.name)
    with root.writer(key) as writer:
        for piece in content.pieces:
            writer.write(piece)
            digest.update(piece)
            size_bytes += len(piece)
        etag = writer.commit().etag
    return IndexFile(content.kind, content.name, size_bytes, digest.hexdigest(), etag)


PutIndexes = Callable[[Store, str, str, str, ShardFormat, Spool], tuple[IndexFile, ...]]
"""`put_indexes`, or `described_indexes`, which has the same arguments."""


def described_indexes(
    root: Store, segment: str, split: str, shard: str, shard_format: ShardFormat, rows: Spool
) -> tuple[IndexFile, ...]:
    """What `put_indexes` would write; nothing is written."""
    del root, segment, split
    return tuple(file for file, _ in index_files(shard_format.indexes, shard, rows))


def index_rows(
    root: Store,
    segment: str,
    shard_format: ShardFormat,
    shards: Iterable[Indexed],
    put: PutIndexes = put_indexes,
) -> Iterator[pa.RecordBatch]:
    """Rows of `larder.manifest.schemas.INDEXES` for some shards, all of which exist then.

    ``put`` is called for a shard that lacks an index file, and returns those of the shard.
    """
    infos = {info.key: info for info in listed(root, layout.index_prefix(segment))}
    kinds = {index.kind for index in shard_format.indexes}
    for indexed in shards:
        shard = indexed.shard
        files = shard.indexes
        objects = [
            infos.get(layout.reader_index_key(segment, file.kind, shard.split, file.name))
            for file in files
        ]
        complete = all(
            info is not None and (info.size_bytes, info.etag) == (file.bytes, file.etag)
            for info, file in zip(objects, files, strict=True)
        )
        if not complete or {file.kind for file in files} != kinds:
            rows = _rows(root, indexed)
            files = put(root, segment, shard.split, shard.name, shard_format, rows)
        if files:
            yield _batch(segment, shard, files)


def _rows(root: Store, indexed: Indexed) -> Spool:
    rows = read_ref(
        root, indexed.rows, SAMPLES, first_row=indexed.first_row, rows=indexed.shard.samples
    )
    return Spool.of(rows, SAMPLES)


def _batch(segment: str, shard: Shard, files: Iterable[IndexFile]) -> pa.RecordBatch:
    rows = [
        (segment, shard.split, shard.name, file.kind, file.name, file.bytes, file.sha256)
        for file in files
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INDEXES, strict=True)]
    return pa.record_batch(arrays, schema=INDEXES)
