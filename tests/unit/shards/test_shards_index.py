import tracemalloc

import google_crc32c
import pyarrow as pa
import pytest

from larder.manifest.spool import Spool
from larder.shards.index_rows import IndexRows, sample_rows
from larder.shards.model import RECEIPT_ROWS, ShardResult
from tests.support.packing import index_of


def result(name: str = "d-train-000000.tar") -> ShardResult:
    rows = IndexRows()
    image = ("jpg", "a/b.JPEG", "e1", 1536, 700, google_crc32c.value(b"x"))
    rows.add(("a/b", 0, 2560, 4), [("cls", None, None, 512, 1, 11), image])
    rows.add(("c", 2560, 512, None), [("txt", "c.txt", "e2", 3072, 0, 2**32 - 1)])
    return ShardResult("train", name, (), rows.finish(), Spool(RECEIPT_ROWS))


@pytest.mark.exhaustive
def test_rows_of_a_shard_do_not_stay_in_memory():
    """Neither while they are collected, nor when rows of the manifest are made of them."""

    def peak_bytes(count: int) -> int:
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        rows, most = IndexRows(), 0
        for number in range(count):
            part = ("jpg", f"folder/{number}.jpg", f"etag-{number}", number, 700, 1)
            rows.add((f"folder/{number}", number, 2560, 4), [part])
            most = max(most, pa.total_allocated_bytes() - arrow)
        for batch in index_of(ShardResult("train", "d", (), rows.finish(), Spool(RECEIPT_ROWS))):
            assert batch.num_rows <= 2_048
            most = max(most, pa.total_allocated_bytes() - arrow)
        most += tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak_bytes(24_000) < peak_bytes(12_000) + 500_000


def test_rows_of_a_slice_are_those_of_its_samples():
    whole = result()
    (rest,), (everything,) = whole.samples.read(1), whole.samples.read()
    place = ("seg", "train", whole.name)
    assert sample_rows(rest, *place, 41) == sample_rows(everything, *place, 40).slice(1)
