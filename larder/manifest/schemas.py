"""The columns of every manifest. Columns are pinned: a change is a new format version.

A manifest is an Arrow table kept as Parquet. Strings compare by their UTF-8 bytes.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["FORMAT", "OBJECTS", "RECORDS", "SAMPLES", "SAMPLE_ORDER", "SHARDS"]

FORMAT = 1

OBJECTS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("checksum", pa.string()),
        pa.field("check", pa.string()),
    ]
)
"""One row per object, ordered by key.

``checksum`` is ``crc32c:`` and eight hex digits of the content where it was read; ``check`` says
how a copy was verified (``md5``, ``crc32c``, ``same``).
"""

SAMPLE_ORDER = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("label", pa.int32()),
        pa.field(
            "parts",
            pa.list_(
                pa.field(
                    "part",
                    pa.struct(
                        [
                            pa.field("ext", pa.string(), nullable=False),
                            pa.field("key", pa.string(), nullable=False),
                            pa.field("size_bytes", pa.int64(), nullable=False),
                            pa.field("etag", pa.string(), nullable=False),
                        ]
                    ),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
    ]
)
"""One row per planned sample, in the order of the shards: splits one after the other.

``parts`` are sorted by ``ext`` and hold the source objects; the label becomes a part ``cls`` when
it is written.
"""

SAMPLES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("label", pa.int32()),
        pa.field(
            "parts",
            pa.list_(
                pa.field(
                    "part",
                    pa.struct(
                        [
                            pa.field("ext", pa.string(), nullable=False),
                            pa.field("offset", pa.int64()),
                            pa.field("length", pa.int64(), nullable=False),
                            pa.field("crc32c", pa.uint32(), nullable=False),
                        ]
                    ),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
    ]
)
"""One row per sample of a segment. ``id`` counts from 0 within a split.

``offset`` and ``length`` say where the sample is in the shard's first file: in bytes, with all that
belongs to it, such as headers and padding; in a format of columns the number of its row, and 1.
``length`` and ``crc32c`` of a part are of its content as it is read back, ``offset`` is where these
bytes stand as they are: null where the format keeps them otherwise. A label is a part ``cls``,
decimal digits in ASCII, whatever the format makes of it.
"""

SHARDS = pa.schema(
    [
        pa.field("segment", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
"""One row per file of a shard, in the order of the dataset file's splits, then of the shards.

The first file of a shard gives it its name and has its ``samples``; of its others, which follow,
``samples`` is 0.
"""

RECORDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("sample_id", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
    ]
)
"""One row per record of one cache part, ordered by id. Reserved: nothing writes it yet."""
