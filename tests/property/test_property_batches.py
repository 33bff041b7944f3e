"""Batches of copies have every row once."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from larder.copy.copy_job import cut_batches

SIZES = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4)


@given(SIZES, st.integers(1, 20), st.integers(1, 5))
def test_batches_cover_every_row_once(sizes, most, rows):
    flat = [size for each in sizes for size in each]
    batches = [
        pa.record_batch([pa.array(each, pa.int64())], names=["size_bytes"]) for each in sizes
    ]
    found = list(cut_batches(batches, most, rows))
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
