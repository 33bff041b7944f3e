"""What the mirror holds already; the verdicts: tests/property/test_property_copy_plan.py."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from larder.copy.copy_matches import uncopied
from larder.manifest.schemas import DUE, OBJECTS
from larder.source.inventory import object_batches
from larder.store.base import ObjectInfo


def due(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.select(DUE.names) for batch in rows)


def test_a_copy_counts_as_long_as_a_receipt_fits_both_objects(tmp_path):
    rows = [
        {"key": "k", "size_bytes": 1, "etag": etag, "modified": 0, "mirror_etag": copy}
        for etag, copy in (("old", "n"), ("e", "m"), ("e", "other"))
    ]
    known = pa.RecordBatch.from_pylist(rows, schema=OBJECTS)
    for there, is_due in {"m": 0, "other": 0, "n": 1, "": 1}.items():
        source, mirrored = ObjectInfo("k", 1, "e", 0), ObjectInfo("k", 1, there, 0)
        found = uncopied(
            due(object_batches([source])),
            [mirrored] if there else [],
            [known],
            [],
            md5=True,
            work_dir=tmp_path,
        )
        assert sum(map(len, found)) == is_due


@pytest.mark.parametrize(("checksum", "is_due"), [("crc32c:00000000", 0), (None, 1)])
def test_a_copy_that_its_record_cannot_read_is_made_again(tmp_path, checksum, is_due):
    source = ObjectInfo("k", 1, "0" * 32, 0)
    row = {"key": "k", "size_bytes": 1, "etag": source.etag, "modified": 0, "mirror_etag": "m-1"}
    record = pa.RecordBatch.from_pylist([{**row, "checksum": checksum}], schema=OBJECTS)
    rows = uncopied(
        due(object_batches([source])), [source], [], [record], md5=True, work_dir=tmp_path
    )
    assert sum(map(len, rows)) == is_due
