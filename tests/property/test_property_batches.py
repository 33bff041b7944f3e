"""Batches of copies have every row once; those of shards get the receipts of what they read."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.copy import copy_job
from larder.copy.copy_job import cut_batches
from larder.manifest.sealed import StoredFile
from larder.segments.shard import with_receipts
from larder.shards.model import ShardBatch, ShardPlan

BATCHES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=12)
RANGES = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 40)), max_size=12)


@given(BATCHES, RANGES)
def test_a_batch_gets_every_receipt_of_its_rows(gaps_and_rows, ranges):
    batches, first = [], 0
    for index, (gap, rows) in enumerate(gaps_and_rows):
        first += gap
        plan = ShardPlan("train", index, f"{index}.tar", first, rows, 1)
        batches.append(ShardBatch(index, (plan,)))
        first += rows
    receipts = [
        (range(start, start + rows), StoredFile(str(number), 0, "", "receipt"))
        for number, (start, rows) in enumerate(ranges)
    ]
    found = list(with_receipts(batches, receipts))
    assert [batch.shards for batch in found] == [batch.shards for batch in batches]
    for batch in found:
        own = range(batch.first_row, batch.first_row + batch.rows)
        wanted = {ref.path for rows, ref in receipts if set(rows) & set(own)}
        assert {ref.path for ref in batch.copies} == wanted
        assert len(batch.copies) == len(wanted)


SIZES = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4)


@given(SIZES, st.integers(1, 20), st.integers(1, 5))
def test_batches_cover_every_row_once(sizes, most, rows):
    flat = [size for each in sizes for size in each]
    batches = [
        pa.record_batch([pa.array(each, pa.int64())], names=["size_bytes"]) for each in sizes
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_job, "BATCH_OBJECTS", rows)
        found = list(cut_batches(batches, most))
    at = 0
    for batch in found:
        assert batch.first_row == at
        at += batch.rows
        assert 1 <= batch.rows <= rows
        assert batch.bytes == sum(flat[batch.first_row : at])
        assert batch.bytes <= most or batch.rows == 1
    assert at == len(flat)
    for one, other in pairwise(found):
        full = one.bytes + flat[other.first_row] > most
        assert full or one.rows == rows
