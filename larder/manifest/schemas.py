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
"""What may stand in the columns of manifests that become parts of paths."""

_TYPES = {"time": pa.timestamp("us", tz="UTC")}


def columns(**types: str | pa.DataType) -> list[pa.Field]:
    """Columns by name: Arrow's name of the type, or ``time``; with ``?``, there may be nulls."""
    fields = []
    for name, kind in types.items():
        plain = kind.removesuffix("?") if isinstance(kind, str) else kind
        arrow = _TYPES.get(plain) or pa.type_for_alias(plain) if isinstance(plain, str) else plain
        fields.append(pa.field(name, arrow, nullable=plain != kind))
    return fields


def table(**types: str | pa.DataType) -> pa.Schema:
    """The schema of such columns."""
    return pa.schema(columns(**types))


def parts_of(**types: str) -> pa.ListType:
    """The type of a column with the parts of each sample, given the columns of a part."""
    return pa.list_(pa.field("part", pa.struct(columns(**types)), nullable=False))


def lists_of(
    kind: pa.ListType, column: Callable[[str], pa.Array], offsets: npt.ArrayLike
) -> pa.ListArray:
    """Lists of structs, given the column of each field, and where lists begin and end, from 0."""
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

``etag`` is that of the source. ``checksum``, if known, is ``crc32c:`` and eight hex digits, or what
the source's listing says. The last two columns describe the copy in the mirror and are null in an
inventory: its etag, and how it was verified (``md5``, ``crc32c``, ``size``). In a receipt, and in
the manifest of a copy, ``modified`` is that of the copy.
"""

DUE = pa.schema([OBJECTS.field(name) for name in ("key", "size_bytes", "etag")])
"""One row per object to copy, ordered by key."""

FAILURES = table(key="string", code="string", message="string", attempts="int64")
"""One row per object that could not be copied, ordered by key within a batch.

`larder.errors.Failure` describes the columns.
"""

INDEXED_PARTS = parts_of(ext="string", offset="int64?", length="int64", crc32c="uint32")
"""The parts of a sample in a shard, as the index of a segment has them."""

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

``parts`` are sorted by ``ext`` and list the source objects; the label becomes a part ``cls`` when
it is written. ``checksum`` is what the inventory says. The samples are followed, with an empty
``split``, by the objects that are mirrored but are not parts of samples.

``packed`` is the place of a sample in a shard of the previous version, if it is read from there and
not from its objects, as in the index of its segment, without the label's part. The split may
differ from that of the row. Its fields are null only where it is null itself. ``bad`` is what an
earlier run said of a sample that it left out as bad: the sample is planned for, and left out again
without being read.
"""

COPIES = table(copies=parts_of(mirror_etag="string?", checksum="string?"))
"""One row per row of `SAMPLE_ORDER`: what the record of the mirror says of each of its parts.

``mirror_etag`` is null if it is the etag of the source.
"""

SOURCES = table(
    key="string",
    label="int32?",
    parts=parts_of(ext="string", source="string", etag="string", length="int64", crc32c="uint32"),
)
"""One row per sample of a segment, in the order of its index: what it was packed from.

``parts`` are those that were read from objects, so without the label's. ``source`` is the key of
the object, and ``etag`` is that object's; ``length`` and ``crc32c`` are of what was stored, which
of a transformed image are not those of the object.
"""

SKIPPED = table(
    split="string",
    key="string",
    parts=parts_of(ext="string", key="string", size_bytes="int64", etag="string"),
    check="string",
    message="string",
)
"""One row per sample that was planned and left out as bad, in the order in which it was planned.

``parts`` are its source objects, as in `SAMPLE_ORDER`. ``check`` says how it was checked, and
``message`` why it is bad. As long as neither the parts nor the check change, it need not be read
again.
"""
