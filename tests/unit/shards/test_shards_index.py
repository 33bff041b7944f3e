import tracemalloc

import pyarrow as pa
import pytest

from larder.shards.index_rows import IndexRows


@pytest.mark.push
def test_rows_of_a_shard_do_not_stay_in_memory():
    """Neither while they are collected, nor when they are read."""

    def peak_bytes(count: int) -> int:
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        rows, most = IndexRows(), 0
        for number in range(count):
            part = ("jpg", f"folder/{number}.jpg", f"etag-{number}", number, 700, 1)
            rows.add((f"folder/{number}", number, 2560, 4), [part])
            most = max(most, pa.total_allocated_bytes() - arrow)
        for batch in rows.finish().read():
            assert batch.num_rows <= 2_048
            most = max(most, pa.total_allocated_bytes() - arrow)
        most += tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak_bytes(24_000) < peak_bytes(12_000) + 500_000
