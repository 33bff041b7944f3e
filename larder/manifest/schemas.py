"""The columns of every manifest. Columns are pinned: a change is a new format version.

A manifest is an Arrow table in a Parquet file. Strings are compared by their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy.typing as npt
import pyarrow as pa

from larder.names import FILE, SPLIT

FORMAT = 1

RULES = {"split": SPLIT, "name": FILE}
"""Rules for the values of manifest columns that become parts of paths."""

_TYPES = {"time": pa.timestamp("us", tz="UTC")}


def columns(**types: str | pa.DataType) -> list[pa.Field]:
    """Make columns by name: Arrow's name of the type, or ``time``; ``?`` allows nulls."""
    fields = []
    for name, kind in types.items():
        plain = kind.removesuffix("?") if isinstance(kind, str) else kind
        arrow = _TYPES.get(plain) or pa.type_for_alias(plain) if isinstance(plain, str) else plain
        fields.append(pa.field(name, arrow, nullable=plain != kind))
    return fields


def table(**types: str | pa.DataType) -> pa.Schema:
    """Make the schema of columns given as for `columns`."""
    return pa.schema(columns(**types))


def parts_of(**types: str) -> pa.ListType:
    """Return the type of a column with the parts of each sample, given the columns of a part."""
    return pa.list_(pa.field("part", pa.struct(columns(**types)), nullable=False))


def lists_of(
    kind: pa.ListType, column: Callable[[str], pa.Array], offsets: npt.ArrayLike
) -> pa.ListArray:
    """Make lists of structs, given each field's column, and the offsets of the lists from 0."""
    fields = list(kind.value_type)
    structs = pa.StructArray.from_arrays([column(field.name) for field in fields], fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=kind)


OBJECTS = table(
    key="string",
    size_bytes="int64",
    etag="string",
    modified="time",
    checksum="string?",
    mirror_etag="string?",
    check="string?",
)
"""One row per object: of an inventory, ordered by key, or of a receipt of copies.

``etag`` is the source's etag. ``checksum``, if known, is ``crc32c:`` and eight hex digits, or the
checksum in the source's listing. The last two columns are null in an inventory; they are the etag
and the verification (``md5``, ``crc32c``, ``size``) of the copy in the mirror. In a receipt, and in
the manifest of a copy, ``modified`` is the modification time of the copy.
"""

DUE = pa.schema([OBJECTS.field(name) for name in ("key", "size_bytes", "etag")])
"""One row per object to copy, ordered by key."""

FAILURES = table(key="string", code="string", message="string", attempts="int64")
"""One row per object that could not be copied, ordered by key within a batch.

`larder.errors.Failure` describes the columns.
"""

INDEXED_PARTS = parts_of(ext="string", offset="int64?", length="int64", crc32c="uint32")
"""The parts of a sample in a shard, from the index of a segment."""

_PACKED = pa.struct(
    [
        *columns(
            segment="string?", split="string?", shard="string?", offset="int64?", length="int64?"
        ),
        pa.field("parts", INDEXED_PARTS),
    ]
)

SAMPLE_ORDER = pa.schema(
    [
        *columns(
            split="string",
            key="string",
            label="int32?",
            parts=parts_of(
                ext="string",
                key="string",
                size_bytes="int64",
                etag="string",
                checksum="string?",
            ),
        ),
        pa.field("packed", _PACKED),
        *columns(bad="string?"),
    ]
)
"""One row per planned sample, in the order of the shards: splits one after the other.

``parts`` are sorted by ``ext`` and list the source objects; the writer of a shard adds the label as
a part ``cls``. ``checksum`` is the checksum in the inventory. Rows with an empty ``split`` follow
the samples; they are objects that are mirrored but are not parts of samples.

``packed`` is the place of a sample in a shard of the previous version, if the sample is read from
the shard. The place comes from the index of the segment, without the label's part. The split may
differ from the row's split. Fields of ``packed`` are null only if ``packed`` is null. ``bad`` is
the message of an earlier run that left the sample out as bad. Such a sample is planned, and left
out again without being read.
"""

COPIES = table(copies=parts_of(mirror_etag="string?", checksum="string?"))
"""One row per row of `SAMPLE_ORDER`: facts of the mirror's record about each part.

``mirror_etag`` is null if it equals the source's etag.
"""

SOURCES = table(
    key="string",
    label="int32?",
    parts=parts_of(ext="string", source="string", etag="string", length="int64", crc32c="uint32"),
)
"""One row per sample of a segment, in the order of the index: the objects it was packed from.

``parts`` are the parts that were read from objects, without the label. ``source`` and ``etag`` are
the object's key and etag. ``length`` and ``crc32c`` are of the stored content; for a transformed
image they differ from the object's.
"""

SKIPPED = table(
    split="string",
    key="string",
    parts=parts_of(ext="string", key="string", size_bytes="int64", etag="string"),
    check="string",
    message="string",
)
"""One row per sample that was planned and left out as bad, in the order of the plan.

``parts`` are the source objects, as in `SAMPLE_ORDER`. ``check`` tells how the sample was
checked, and ``message`` why it is bad. The sample need not be read again until the parts or the
check change.
"""
