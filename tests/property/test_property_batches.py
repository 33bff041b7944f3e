"""Batches of shards get the receipts of the copies that they read, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.sealed import ManifestRef
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
        (range(start, start + rows), ManifestRef(str(number), "", 0, 0))
        for number, (start, rows) in enumerate(ranges)
    ]
    found = list(with_receipts(batches, receipts))
    assert [batch.shards for batch in found] == [batch.shards for batch in batches]
    for batch in found:
        own = range(batch.first_row, batch.first_row + batch.rows)
        wanted = {ref.key for rows, ref in receipts if set(rows) & set(own)}
        assert {ref.key for ref in batch.copies} == wanted
        assert len(batch.copies) == len(wanted)
