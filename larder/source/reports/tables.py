"""Rows of a report: keys and sizes in CSV, Parquet or ORC, read in bounded memory."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.source import Columns
from larder.errors import ConfigError, NotFoundError
from larder.store.base import Readable

ROWS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("storage_class", pa.string(), nullable=False),
    ]
)
"""One row per object; the etag is empty if the report has none."""

S3_NAMES: Mapping[str, tuple[str, ...]] = {
    "key": ("key",),
    "size": ("size",),
    "etag": ("etag", "e_tag"),
    "modified": ("lastmodifieddate", "last_modified_date"),
    "storage_class": ("storageclass", "storage_class"),
    "latest": ("islatest", "is_latest"),
    "marker": ("isdeletemarker", "is_delete_marker"),
}
"""The columns of S3 Inventory, in its CSV files, and in its Parquet and ORC files.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory.html#storage-inventory-contents
"""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "key": ("key",),
    "size": ("size", "size_bytes"),
    "etag": ("etag",),
    "modified": ("modified", "last_modified"),
    "storage_class": ("storage_class",),
}
_REQUIRED = ("key", "size")
_BLOCK_BYTES = 1 << 20
_BATCH_ROWS = 50_000
_SHOWN_COLUMNS = 12
_UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Table:
    """What the files of a report are.

    Attributes:
        header: The columns of CSV files without a header; None: the first line names them.
        columns: Columns that the user has named; None for a report of S3 Inventory.
    """

    format: str
    header: tuple[str, ...] | None = None
    columns: Columns | None = None

    @property
    def encodes_keys(self) -> bool:
        """Whether keys are URL-encoded: in the CSV files of S3 Inventory."""
        return self.format == "csv" and self.columns is None


def report_error(message: str, where: str, hint: str = "") -> ConfigError:
    return ConfigError("config.inventory", message, where=where, hint=hint)


def read_rows(path: Path, table: Table, where: str) -> Iterator[pa.RecordBatch]:
    """The rows of one file, in its order, as batches of schema ROWS: the latest versions of
    objects, without delete markers. The end of the file's name tells the compression.
    """
    with _arrow_errors(f"not a readable {table.format} file", where):
        names, batches = _READERS[table.format](path, table, where)
        for batch in batches:
            yield _rows(batch, names, table, where)


Found = tuple[Mapping[str, str], Iterator[pa.RecordBatch]]
"""By field, the column of the file; and the batches with these columns."""


def _csv(path: Path, table: Table, where: str) -> Found:
    from pyarrow import csv as arrow_csv

    names = _chosen(table.header or _header(path), table, where)
    stream = pa.input_stream(str(path), compression="detect", buffer_size=_BLOCK_BYTES)
    reader = arrow_csv.open_csv(
        stream,
        arrow_csv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK_BYTES,
            column_names=list(table.header) if table.header else None,
        ),
        arrow_csv.ParseOptions(newlines_in_values=True),
        arrow_csv.ConvertOptions(
            include_columns=list(names.values()),
            column_types=dict.fromkeys(names.values(), pa.string()),
        ),
    )
    return names, iter(reader)


def _header(path: Path) -> Sequence[str]:
    with pa.input_stream(str(path), compression="detect") as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        return next(csv.reader(text), [])


def _parquet(path: Path, table: Table, where: str) -> Found:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    names = _chosen(file.schema_arrow.names, table, where)
    batches = file.iter_batches(_BATCH_ROWS, columns=list(names.values()), use_threads=False)
    return names, batches


def _orc(path: Path, table: Table, where: str) -> Found:
    from pyarrow import orc

    file = orc.ORCFile(path)
    names = _chosen(file.schema.names, table, where)
    columns = list(names.values())
    return names, (file.read_stripe(number, columns) for number in range(file.nstripes))


_READERS = {"csv": _csv, "parquet": _parquet, "orc": _orc}


def _chosen(there: Sequence[str], table: Table, where: str) -> Mapping[str, str]:
    """By field, the column that has it; refused if one that is required or named is missing."""
    by_name = {name.lower(): name for name in reversed(there)}
    usual = S3_NAMES if table.columns is None else _NAMES
    found: dict[str, str] = {}
    for field, names in usual.items():
        named = getattr(table.columns, field, None)
        if named is not None and named in there:
            found[field] = named
            continue
        name = next((by_name[each] for each in names if each in by_name), None)
        if named is not None or (name is None and field in _REQUIRED):
            shown = ", ".join(there[:_SHOWN_COLUMNS])
            hint = f"its columns are {shown}; name one in source.inventory.columns.{field}"
            if table.columns is None:
                hint = "let the report have the size, ETag and last modified date of each object"
            raise report_error(f"there is no column {named or names[0]}", where, hint)
        if name is not None:
            found[field] = name
    return found


def _rows(
    batch: pa.RecordBatch, names: Mapping[str, str], table: Table, where: str
) -> pa.RecordBatch:
    batch = _latest(batch, names)
    keys = _text(batch.column(names["key"]))
    if table.encodes_keys:
        keys = _decoded(keys, where)
    with _arrow_errors(f"column {names['size']}: not a number of bytes", where):
        sizes = batch.column(names["size"]).cast(pa.int64())
    if sizes.null_count or keys.null_count or pc.any(pc.less(sizes, 0)).as_py():
        raise report_error("a row without a key, or without a size of 0 bytes or more", where)
    rows = len(batch)
    return pa.record_batch(
        [
            keys,
            sizes,
            _etags(batch, names),
            _times(batch.column(names["modified"]), names["modified"], where)
            if "modified" in names
            else pa.array([0] * rows, pa.int64()).cast(_UTC_MICROSECONDS),
            _classes(batch, names),
        ],
        schema=ROWS,
    )


def _latest(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    for field, wanted in (("latest", "true"), ("marker", "false")):
        if field in names:
            said = pc.utf8_lower(batch.column(names[field]).cast(pa.string()))
            batch = batch.filter(pc.equal(pc.fill_null(said, wanted), wanted))
    return batch


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _decoded(keys: pa.Array, where: str) -> pa.Array:
    if not pc.any(pc.match_substring_regex(keys, "[%+]")).as_py():
        return keys
    try:
        return pa.array(
            [
                None if key is None else unquote_plus(key, errors="strict")
                for key in keys.to_pylist()
            ],
            pa.string(),
        )
    except UnicodeDecodeError:
        raise report_error("a key that is not URL-encoded UTF-8", where) from None


def _etags(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.Array:
    if "etag" not in names:
        return pa.array([""] * len(batch), pa.string())
    etags = pc.utf8_trim(_text(batch.column(names["etag"])), '"')
    return pc.fill_null(etags, "")


def _classes(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.Array:
    if "storage_class" not in names:
        return pa.array([""] * len(batch), pa.string())
    classes = pc.fill_null(_text(batch.column(names["storage_class"])), "")
    return pc.if_else(pc.equal(classes, "STANDARD"), "", classes)


def _times(column: pa.Array, name: str, where: str) -> pa.Array:
    """Times in UTC; 1970 where there is none."""
    with _arrow_errors(f"column {name}: not a time such as 2026-11-22T01:02:03Z", where):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            texts = pc.if_else(pc.equal(column, ""), None, column)
            try:
                column = texts.cast(_UTC_MICROSECONDS)
            except pa.ArrowInvalid:
                column = texts.cast(pa.timestamp("us"))
        if not pa.types.is_timestamp(column.type):
            raise pa.ArrowInvalid("not a time")
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        if column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        return pc.fill_null(column.cast(_UTC_MICROSECONDS), 0)


@contextmanager
def _arrow_errors(message: str, where: str) -> Iterator[None]:
    """Raise Arrow's errors, and those of decompression, as errors of the report."""
    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        said = " ".join(str(error).split())[:200]
        raise report_error(f"{message} ({said})", where) from error
    except OSError as error:  # Arrow's, for what is not compressed as its name says
        if error.errno:
            raise
        raise report_error(message, where) from error


MANIFEST = "manifest.json"

DATED = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}Z)/manifest\.json")
"""The key of a manifest in the prefix of an inventory."""

_FORMATS = {"CSV": "csv", "Parquet": "parquet", "ORC": "orc"}
_MOST_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a report: its key in the destination bucket, and its MD5 in hex."""

    key: str
    md5: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A report on ``bucket``, ``taken`` when it was begun."""

    bucket: str
    taken: datetime
    table: Table
    files: tuple[Listed, ...]


def read_manifest(store: Readable, key: str, where: str) -> Manifest:
    """Read a manifest, and check it against its checksum if that is beside it."""
    if store.head(key).size_bytes > _MOST_BYTES:
        raise report_error("not the manifest of a report: it is too large", where)
    data = bytes(store.get(key))
    with suppress(NotFoundError):
        expected = (
            bytes(store.get(f"{key.removesuffix('json')}checksum", length=32)).strip().lower()
        )
        if expected != hashlib.md5(data, usedforsecurity=False).hexdigest().encode():
            raise report_error("the manifest differs from its checksum", where)
    try:
        return _parsed(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = "name the manifest.json of a report of S3 Inventory"
        raise report_error("not the manifest of a report", where, hint) from None


def _parsed(content: Any) -> Manifest:
    kind = _FORMATS[content["fileFormat"]]
    header = None
    if kind == "csv":
        header = tuple(name.strip() for name in content["fileSchema"].split(","))
    return Manifest(
        bucket=content["sourceBucket"],
        taken=datetime.fromtimestamp(int(content["creationTimestamp"]) / 1000, UTC),
        table=Table(kind, header),
        files=tuple(Listed(file["key"], file["MD5checksum"].lower()) for file in content["files"]),
    )
