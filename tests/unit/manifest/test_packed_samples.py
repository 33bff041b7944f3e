"""Tables of packed samples are made from rows of one another."""

import pyarrow as pa

from larder.manifest.schemas import SKIPPED, packed_rows
from larder.shards.model import ROWS


def test_rows_of_a_slice_keep_their_parts():
    part = {"ext": "jpg", "etag": "e", "length": 1}
    samples = [
        {
            "key": str(row),
            "bad": "x",
            "parts": [{**part, "source": f"{row}-{at}"} for at in range(row)],
        }
        for row in range(4)
    ]
    batch = pa.RecordBatch.from_pylist(samples, ROWS).slice(2)
    rows = packed_rows(batch, SKIPPED, split="train", check="header").to_pylist()
    assert rows == [{**each, "split": "train", "check": "header"} for each in samples[2:]]
