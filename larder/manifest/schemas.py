"""The columns of every manifest. Columns are pinned: a change is a new format version.

A manifest is an Arrow table in a Parquet file. Strings are compared by their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from larder.names import FILE, SPLIT

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
    return pa.schema(columns(**types))


def parts_of(**types: str) -> pa.ListType:
    """Return the type of a column with the parts of each sample, given the columns of a part."""
    return _part_lists(columns(**types))


def _part_lists(fields: Iterable[pa.Field]) -> pa.ListType:
    return pa.list_(pa.field("part", pa.struct(list(fields)), nullable=False))


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

PACKED_SAMPLE = table(
    split="string",
    segment="int32",
    row="int64",
    shard="string",
    shard_number="int32",
    key="string",
    label="int32",
    offset="int64",
    length="int64",
    parts=parts_of(
        ext="string",
        source="string",
        etag="string",
        offset="int64",
        length="int64",
        crc32c="uint32",
    ),
    check="string",
    bad="string",
)
"""All columns of a sample in a segment. Manifests and tables select some: see `packed_columns`.

``segment`` is the number of the segment in its version, ``row`` the row in the index of the
segment, ``shard`` the name of the shard, and ``shard_number`` its number in the segment.

``offset`` and ``length`` of a sample are its place in the shard's first file, in bytes, including
headers and padding; in a columnar format they are the row number and 1. ``offset``, ``length`` and
``crc32c`` of a part describe its stored content; the offset is null if the format stores the
content in another form. For a transformed image, length and checksum differ from the object's.
``source`` is the key of the part's object, ``etag`` the object's etag; both are null for a label. A
label is the part ``cls`` in ASCII decimal digits, in any form that the format stores.

A sample that was left out as bad has the reason ``bad``, and ``check`` tells how it was checked. It
has no place, and its parts have the lengths of their objects and the checksum 0.
"""


def packed_columns(names: str, parts: str) -> pa.Schema:
    """Select columns of `PACKED_SAMPLE`, and fields of its parts, by name; ``?`` allows nulls."""
    lists = _part_lists(_selected(PACKED_SAMPLE.field("parts").type.value_type, parts))
    fields = _selected(PACKED_SAMPLE, names)
    return pa.schema(
        [field.with_type(lists) if field.name == "parts" else field for field in fields]
    )


def _selected(fields: pa.Schema | pa.StructType, names: str) -> list[pa.Field]:
    return [
        fields.field(name.removesuffix("?")).with_nullable(name.endswith("?"))
        for name in names.split()
    ]


def packed_rows(samples: pa.RecordBatch, schema: pa.Schema, **values: Any) -> pa.RecordBatch:
    """Select the columns of a schema from samples; ``values`` are further columns.

    A value that is no array is the same in all rows. Parts may have more fields than the schema.
    """
    columns = []
    for field in schema:
        column = values[field.name] if field.name in values else samples.column(field.name)
        if not isinstance(column, pa.Array):
            column = pa.repeat(pa.scalar(column, field.type), samples.num_rows)
        elif field.name == "parts" and column.type != field.type:
            offsets = column.offsets.to_numpy()
            column = lists_of(field.type, column.flatten().field, offsets - offsets[0])
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


INDEXED = packed_columns(
    "key shard offset length label? parts",
    "ext offset? length crc32c",
)
"""One row per sample in the index of a segment."""

_PLACE = packed_columns("shard? offset? length? parts?", "ext offset? length crc32c")

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
        pa.field("packed", pa.struct(list(_PLACE))),
        *columns(bad="string?"),
    ]
)
"""One row per planned sample, in the order of the shards: splits one after the other.

``parts`` are sorted by ``ext`` and list the source objects; the writer of a shard adds the label as
a part ``cls``. ``checksum`` is the checksum in the inventory. Rows with an empty ``split`` follow
the samples; they are objects that are mirrored but are not parts of samples.

``packed`` is the place of a sample in a shard of the previous version, if the sample is read from
the shard: columns of `PACKED_SAMPLE` without the label's part, where ``shard`` is the key of the
shard. Its fields are null only if ``packed`` is null. ``bad`` is the message of an earlier run that
left the sample out as bad. Such a sample is planned, and left out again without being read.
"""

COPIES = table(copies=parts_of(mirror_etag="string?", checksum="string?"))
"""One row per row of `SAMPLE_ORDER`: facts of the mirror's record about each part.

``mirror_etag`` is null if it equals the source's etag.
"""

SOURCES = packed_columns("key label? parts", "ext source etag length crc32c")
"""One row per sample of a segment, in the order of the index: the objects it was packed from.

``parts`` are the parts that were read from objects, without the label.
"""

SKIPPED = packed_columns("split key parts check bad", "ext source length etag")
"""One row per sample that was planned and left out as bad, in the order of the plan.

``parts`` are the source objects. The sample need not be read again until they or the check change.
"""
