"""Rows that are out of order end a comparison."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
import pytest

from larder.errors import DamageError
from larder.manifest.query import Stream
from larder.manifest.sort import aligned_all


def test_rows_out_of_order_are_damage():
    schema = pa.schema([("key", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"key": key} for key in "cba"], schema=schema)
    with pytest.raises(DamageError) as caught:
        list(islice(aligned_all([Stream(schema, [batch])], ["key"]), 10))
    assert caught.value.code == "damage.manifest"
