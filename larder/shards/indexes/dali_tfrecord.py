"""The index of a file of records for NVIDIA DALI (``fn.readers.tfrecord(index_path=...)``).

The text that DALI's ``tfrecord2idx`` writes: a line ``OFFSET SIZE`` for each record, with its
length and its checksums.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.spool import Spool


class DaliTFRecordIndex:
    kind = "dali"

    def file_name(self, shard: str) -> str:
        return f"{shard.removesuffix('.tfrecord')}.idx"

    def content(self, rows: Spool) -> Iterator[bytes]:
        return map(_lines, rows.read())


def _lines(rows: pa.RecordBatch) -> bytes:
    columns = [rows.column(name).cast(pa.string()) for name in ("offset", "length")]
    lines = pc.binary_join_element_wise(*columns, " ")
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    return f"{text[0].as_py()}\n".encode()
