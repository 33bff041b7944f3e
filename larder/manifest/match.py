"""Matching two streams of rows by key, both ordered by it, within bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["match_rows", "take_rows"]


def match_rows(
    wanted: Iterable[pa.RecordBatch], found: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
    """Each batch of ``wanted`` with the rows of ``found`` that have one of its keys.

    A key may come several times, on either side.

    Args:
        wanted: Batches with a text column ``key``, ordered by its UTF-8 bytes.
        found: Others, ordered so too; read no further than ``wanted`` asks.
        schema: That of ``found``.

    Yields:
        Pairs of a batch and its matches, in their order. A batch of either side and the matches
        are held in memory.
    """
    batches = (batch for batch in found if batch.num_rows)
    ahead = next(batches, None)
    matches = schema.empty_table()
    for batch in wanted:
        if not batch.num_rows:
            continue
        keys = batch.column("key")
        # What the last batch ended with may be what this one begins with.
        pieces = [_having(keys, piece) for piece in matches.to_batches()]
        while ahead is not None:
            pieces.append(_having(keys, ahead))
            if _last_key(ahead) > _last_key(batch):
                ahead = ahead.filter(pc.greater(ahead.column("key"), keys[-1]))
                break
            ahead = next(batches, None)
        matches = pa.Table.from_batches(pieces, schema)
        yield batch, matches
        matches = matches.filter(pc.equal(matches.column("key"), keys[-1]))


def take_rows(keys: pa.Array, table: pa.Table) -> pa.Table:
    """For each key the first row of ``table`` that has it; nulls where none has.

    Args:
        keys: Text.
        table: Has a column ``key``.
    """
    return table.take(pc.index_in(keys, value_set=table.column("key").combine_chunks()))


def _having(keys: pa.Array, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("key"), value_set=keys))


def _last_key(batch: pa.RecordBatch) -> bytes:
    key: str = batch.column("key")[-1].as_py()
    return key.encode()
