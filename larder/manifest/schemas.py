"""The columns of every manifest. Columns are pinned: a change is a new format version.

A manifest is an Arrow table in a Parquet file. Strings are compared by their UTF-8 bytes.
"""

from __future__ import annotations

import pyarrow as pa

FORMAT = 1


def _parts(fields: list[pa.Field]) -> pa.ListType:
    """The type of a column with the parts of each sample, given the fields of a part."""
    return pa.list_(pa.field("part", pa.struct(fields), nullable=False))


OBJECTS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("checksum", pa.string()),
        pa.field("mirror_etag", pa.string()),
        pa.field("check", pa.string()),
    ]
)
"""One row per object: of an inventory, ordered by key, or of a receipt of copies.

``etag`` is that of the source. ``checksum``, if known, is ``crc32c:`` and eight hex digits, or what
the source's listing says. The last two columns describe the copy in the mirror and are null in an
inventory: its etag, and how it was verified (``md5``, ``crc32c``, ``size``). In a receipt, and in
the manifest of a copy, ``modified`` is that of the copy.
"""

DUE = pa.schema(
    [
        *(OBJECTS.field(name) for name in ("key", "size_bytes", "etag")),
        pa.field("sample", pa.int64()),
    ]
)
"""One row per object to copy, in the order of copying.

That is the order of the keys. For the mirror of a dataset it is the order of the samples, and
``sample`` is the row of the object's in the manifest of these.
"""

FAILURES = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("attempts", pa.int64(), nullable=False),
    ]
)
"""One row per object that could not be copied, ordered by key within a batch.

`larder.errors.Failure` describes the columns.
"""

SAMPLE_ORDER = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("label", pa.int32()),
        pa.field(
            "parts",
            _parts(
                [
                    pa.field("ext", pa.string(), nullable=False),
                    pa.field("key", pa.string(), nullable=False),
                    pa.field("size_bytes", pa.int64(), nullable=False),
                    pa.field("etag", pa.string(), nullable=False),
                    pa.field("mirror_etag", pa.string()),
                    pa.field("checksum", pa.string()),
                ]
            ),
            nullable=False,
        ),
        pa.field(
            "packed",
            pa.struct(
                [
                    pa.field("segment", pa.string()),
                    pa.field("split", pa.string()),
                    pa.field("shard", pa.string()),
                    pa.field("offset", pa.int64()),
                    pa.field("length", pa.int64()),
                    pa.field(
                        "parts",
                        _parts(
                            [
                                pa.field("ext", pa.string(), nullable=False),
                                pa.field("offset", pa.int64()),
                                pa.field("length", pa.int64(), nullable=False),
                                pa.field("crc32c", pa.uint32(), nullable=False),
                            ]
                        ),
                    ),
                ]
            ),
        ),
        pa.field("bad", pa.string()),
    ]
)
"""One row per planned sample, in the order of the shards: splits one after the other.

``parts`` are sorted by ``ext`` and list the source objects; the label becomes a part ``cls`` when
it is written. ``mirror_etag`` and ``checksum`` are those of a verified copy in the mirror, or null
if the object has to be copied. The samples are followed, with an empty ``split``, by the objects
that are mirrored but are not parts of samples.

``packed`` is the place of a sample in a shard of the previous version, if it is read from there and
not from its objects: the columns of `SAMPLES`, without the label's part. The split may differ from
that of the row. Its fields are null only where it is null itself. ``bad`` is what an earlier run
said of a sample that it left out as bad: the sample is planned for, and left out again without
being read.
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
            _parts(
                [
                    pa.field("ext", pa.string(), nullable=False),
                    pa.field("source", pa.string()),
                    pa.field("etag", pa.string()),
                    pa.field("offset", pa.int64()),
                    pa.field("length", pa.int64(), nullable=False),
                    pa.field("crc32c", pa.uint32(), nullable=False),
                ]
            ),
            nullable=False,
        ),
    ]
)
"""One row per sample of a segment. ``id`` counts from 0 within a split.

``offset`` and ``length`` of a sample are its place in the shard's first file: in bytes, with all
that belongs to it, such as headers and padding; in a columnar format the number of its row, and 1.
Those of a part are the place of its content, of which ``crc32c`` is the checksum; the offset is
null if the format stores the content in another form. ``source`` is the key of the object that the
part was read from, ``etag`` is that object's etag; both are null for a label. A label is the part
``cls``, in ASCII decimal digits, in whatever form the format stores it.
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

A shard has the name of its first file, whose row counts its ``samples``. The rows of its other
files follow, with 0 samples.
"""

INDEXES = pa.schema(
    [
        pa.field("segment", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
"""One row per index file for other readers, in the order of the shards.

`larder.versions.layout.reader_index_key` says where the file is, `larder.shards.indexes` what it
contains: that follows from the shard's rows of `SAMPLES`.
"""

SKIPPED = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field(
            "parts",
            _parts(
                [
                    pa.field("ext", pa.string(), nullable=False),
                    pa.field("key", pa.string(), nullable=False),
                    pa.field("size_bytes", pa.int64(), nullable=False),
                    pa.field("etag", pa.string(), nullable=False),
                ]
            ),
            nullable=False,
        ),
        pa.field("check", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
    ]
)
"""One row per sample that was planned and left out as bad, in the order in which it was planned.

``parts`` are its source objects, as in `SAMPLE_ORDER`. ``check`` says how it was checked, and
``message`` why it is bad. As long as neither the parts nor the check change, it need not be read
again.
"""
