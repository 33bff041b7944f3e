"""``source.rows``: which objects are tables, and how their rows become objects.

Rows of CSV and Parquet are written into a container of Larder's own, as canonical JSON; lines are
ranges of their object (`larder.source.expand.line_rows`).
"""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from larder.config.models.locations import FORMATS, RowFormat, Rows
from larder.manifest.digest import canonical_json
from larder.manifest.extents import in_object, in_own
from larder.samples.columns import Flags, column_flags
from larder.source.expand.annotations import text_file
from larder.source.expand.containers import (
    ContainerWriter,
    Indexes,
    container_name,
    identity,
)
from larder.source.expand.expanded import Container, Expansion
from larder.source.expand.line_rows import MAX_ROW_BYTES, index_lines, row_error
from larder.source.expand.row_values import (
    Named,
    RowName,
    class_name,
    json_value,
    key_names,
    row_names,
    table_rows,
    table_values,
)
from larder.source.selection import KeyRule
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable
from larder.store.seekable import ObjectFile
from larder.units import format_count

_CSV_ROWS = 1_000
_BATCH_BYTES = 16 << 20
_MOST_ROWS = 4_096
_BUFFER_BYTES = 1 << 20


def write_csv_rows(
    source: Readable, info: ObjectInfo, writer: ContainerWriter, *, delimiter: str, named: Named
) -> None:
    """Add the rows of a CSV file with a header: objects of strings, by column.

    A quoted field may have newlines. Blank lines are left out. Rows are numbered from 0, without
    the header. A byte order mark at the beginning is left out.
    """
    where = object_url(source.url, info.key)
    csv.field_size_limit(MAX_ROW_BYTES)
    with (
        source.open(info.key, if_match=info.etag or None) as opened,
        text_file(map(bytes, opened)) as text,
    ):
        reader = csv.reader(_lines(text, where), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            if not header or not all(header):
                raise row_error(where, "its first line does not name every column")
            _check_names(header, header, {}, named, where)
            rows = (row for row in reader if row)
            number = 0
            while batch := list(islice(rows, _CSV_ROWS)):
                _add_csv(writer, header, batch, number, named)
                number += len(batch)
        except csv.Error as error:
            message = f"not CSV in line {reader.line_num:,}: {error}"
            raise row_error(where, message) from None
        except UnicodeDecodeError:
            message = f"it is not UTF-8 in line {reader.line_num + 1:,} or soon after"
            raise row_error(where, message) from None


def _lines(text: io.TextIOWrapper, where: str) -> Iterator[str]:
    """The lines of a file, none of them too long."""
    number = 0
    while line := text.readline(MAX_ROW_BYTES + 1):
        number += 1
        if len(line) > MAX_ROW_BYTES:
            message = f"a line of more than {MAX_ROW_BYTES:,} characters: line {number:,}"
            raise row_error(where, message)
        yield line


def _add_csv(
    writer: ContainerWriter,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    number: int,
    named: Named,
) -> None:
    fields = [dict(zip(header, row, strict=False)) for row in rows]

    def column(name: str) -> list[Any]:
        return [row.get(name, "") for row in fields]

    names, labels = _named(named, column, number, len(rows))
    for at, row in enumerate(rows):
        if len(row) != len(header):
            problem = f"the row has {format_count(len(row), 'field')}, the header {len(header)}"
            names[at] = RowName(names[at].name, problem)
    _add(writer, names, "json", list(map(canonical_json, fields)), labels)


def _named(
    named: Named, column: Callable[[str], list[Any]], number: int, count: int
) -> tuple[list[RowName], list[str | None]]:
    """The names and the classes of rows, of which the first has a number."""
    names = row_names(number, count)
    if named.key is not None:
        names = key_names(named.key, column(named.key), number)
    if named.label is None:
        return names, [None] * count
    labels = []
    for at, value in enumerate(column(named.label)):
        label, problem = class_name(named.label, value)
        names[at] = RowName(names[at].name, names[at].problem or problem)
        labels.append(label)
    return names, labels


def _check_names(
    columns: Sequence[str],
    available: Collection[str],
    parts: Mapping[str, str | None],
    named: Named,
    where: str,
) -> None:
    """Refuse two columns with one name, and a table that lacks a column of the configuration."""
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise row_error(where, f"two columns are named {twice!r}")
    wanted = {"source.rows.key": named.key, "labels.column": named.label}
    for option, name in (wanted | {f"source.rows.columns.{name}": name for name in parts}).items():
        if name is not None and name not in available:
            raise row_error(where, f"it has no column {name!r}, which {option} names")


def _add(
    writer: ContainerWriter,
    names: Sequence[RowName],
    ext: str,
    values: Sequence[bytes],
    labels: Sequence[str | None],
) -> None:
    texts = pa.array([f"{name.name}.{ext}" for name in names], pa.string())
    problems = pa.array([name.problem for name in names], pa.string())
    classes = pa.array(labels, pa.string())
    writer.add(texts, pa.array(values, pa.large_binary()), problems=problems, labels=classes)


def write_parquet_rows(
    source: Readable,
    info: ObjectInfo,
    writer: ContainerWriter,
    *,
    columns: Mapping[str, str | None],
    named: Named,
) -> None:
    """Add the rows of a Parquet file: a part for each column that has an extension, JSON of others.

    ``columns`` are extensions of parts, null where a row has null, and None for columns to leave
    out; ``a.b`` is field ``b`` of the struct ``a``. Binary values have to be either.
    """
    where = object_url(source.url, info.key)
    raw = ObjectFile(source, info.key, info.size_bytes, info.etag)
    try:
        with pq.ParquetFile(
            pa.PythonFile(raw, mode="r"),
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            page_checksum_verification=True,
        ) as file:
            _check_columns(file.schema_arrow, columns, named, where)
            number = 0
            for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                _add_batch(writer, batch, columns, number, named)
                number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        if raw.error is not None:
            raise raw.error from None
        message = f"not a Parquet file that can be read: {str(error).splitlines()[0]}"
        raise row_error(where, message) from None


def _batch_rows(metadata: Any) -> int:
    """How many rows to read at once, so that a batch has about 16 MiB."""
    size_bytes = sum(
        metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)
    )
    each = max(1, size_bytes // max(1, metadata.num_rows))
    return max(1, min(_MOST_ROWS, int(_BATCH_BYTES // each)))


def _check_columns(
    schema: pa.Schema, columns: Mapping[str, str | None], given: Named, where: str
) -> None:
    kinds = {field.name: field.type for field in _fields(schema)}
    _check_names(schema.names, kinds, columns, given, where)
    for name, ext in columns.items():
        if ext is not None and not _is_bytes(kinds[name]):
            message = f"column {name!r} is of type {kinds[name]}: only strings and binary values"
            raise row_error(where, f"{message} can be parts of their own")
    for name, kind in kinds.items():
        if _is_binary(kind) and not _is_covered(name, columns):
            message = f"column {name!r} has binary values: give it an extension, or null to leave"
            raise row_error(where, f"{message} it out, as in source.rows.columns: {{{name}: jpg}}")


def _is_covered(name: str, columns: Mapping[str, str | None]) -> bool:
    steps = name.split(".")
    return any(".".join(steps[: at + 1]) in columns for at in range(len(steps)))


def _fields(schema: pa.Schema) -> Iterator[pa.Field]:
    """Columns, and the fields of structs as ``STRUCT.FIELD``."""
    waiting = list(schema)
    while waiting:
        field = waiting.pop(0)
        yield field
        if pa.types.is_struct(field.type):
            waiting += [inner.with_name(f"{field.name}.{inner.name}") for inner in field.type]


_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def _is_binary(kind: pa.DataType, checks: Sequence[Callable[[Any], bool]] = _BINARY) -> bool:
    values = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return any(check(values) for check in checks)


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_binary(kind, (*_BINARY, *_STRINGS))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a field of a struct: null where the struct is."""
    if name in batch.schema.names:
        return batch.column(name)
    first, *steps = name.split(".")
    column = pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)
    for step in (first, *steps):
        column = column.flatten()[column.type.get_field_index(step)]
    return column


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    return table_values(_column(batch, name), name)


def _add_batch(
    writer: ContainerWriter,
    batch: pa.RecordBatch,
    columns: Mapping[str, str | None],
    number: int,
    named: Named,
) -> None:
    names, labels = _named(named, partial(_values, batch), number, batch.num_rows)
    for name, ext in columns.items():
        if ext is not None:
            values = _values(batch, name)
            present = [at for at, value in enumerate(values) if value is not None]
            given = (values[at] for at in present)
            raw = [value.encode() if isinstance(value, str) else value for value in given]
            classes = [labels[at] for at in present]
            _add(writer, [names[at] for at in present], ext, raw, classes)
    rest = [name for name in batch.schema.names if name not in columns]
    if rest:
        rows = table_rows(batch.select(rest))
        for row in rows:
            _leave_out(row, columns)
        if any(rows):
            _add(
                writer,
                names,
                "json",
                [canonical_json(json_value(row, _json_scalar)) for row in rows],
                labels,
            )


def _leave_out(row: dict[str, Any], columns: Mapping[str, str | None]) -> None:
    """Remove the fields of structs that are parts of their own, or left out."""
    for name in columns:
        *folders, last = name.split(".")
        inner: Any = row
        for folder in folders:
            inner = inner.get(folder) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(last, None)
            if not inner and folders:
                _leave_out(row, {".".join(folders): None})


def _json_scalar(value: Any) -> Any:
    """NaN and infinities are null; bytes are in a list: others are parts, or left out."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    return b64encode(value).decode() if isinstance(value, bytes) else value


def row_expansion(
    rows: Rows,
    others: Collection[str],
    label: str | None,
    source: Readable,
    indexes: Indexes,
) -> Expansion:
    """How tables are expanded.

    ``others`` are never tables, whatever their keys look like: label files and annotation files.
    ``label`` is the column with the class of each row, if there is one.
    """

    def indexed(info: ObjectInfo, path: Path, executor: Executor) -> Container:
        del executor  # a table is read from front to back
        table = _Table(rows, label, info)
        read = not indexes.fetch(table.name, path, rewritten=table.rewritten)
        if read:
            with indexes.writer(table.name, path, rewritten=table.rewritten) as writer:
                table.read(source, writer)
        return Container(info, table.end, last_counts=False, filtered=False, read=read)

    def matches(keys: pa.Array) -> Flags:
        taken = pc.is_in(keys, pa.array(sorted(others), pa.string()))
        return _matching(rows, keys) & ~column_flags(taken)

    return Expansion(matches, indexed, lambda key: None, rows.exclude)


def _matching(rows: Rows, keys: pa.Array) -> Flags:
    if rows.files is not None:
        return KeyRule(rows.files)(keys)
    ends = [end for end, kind in FORMATS.items() if rows.format in ("auto", kind)]
    flags = np.zeros(len(keys), np.bool_)
    for end in ends:
        flags |= column_flags(pc.ends_with(keys, end, ignore_case=True))
    return flags


class _Table:
    """An object whose rows are samples: ``rewritten`` into a container of Larder's own, or ranges.

    ``end`` is the end of the etags of its rows.
    """

    def __init__(self, rows: Rows, label: str | None, info: ObjectInfo) -> None:
        self._rows = rows
        self._label = label
        self._info = info
        self._format = _format(rows, info.key)
        self._delimiter = rows.delimiter or ("\t" if info.key.lower().endswith(".tsv") else ",")
        self.rewritten = self._format in ("csv", "parquet")
        made_from = [*identity(info), self._format, rows.key]
        if self._format == "csv":
            made_from.append(self._delimiter)
        if self._format == "parquet":
            made_from.append(dict(rows.columns))
        if label is not None:
            made_from.append(["label", label])
        self.name = container_name("rows" if self.rewritten else "lines", *made_from)
        self.end = in_own(self.name) if self.rewritten else in_object(info.key, info.etag)

    def read(self, source: Readable, writer: ContainerWriter) -> None:
        info, named = self._info, Named(self._rows.key, self._label)
        if self._format == "csv":
            write_csv_rows(source, info, writer, delimiter=self._delimiter, named=named)
        elif self._format == "parquet":
            columns = self._rows.columns
            write_parquet_rows(source, info, writer, columns=columns, named=named)
        else:
            is_json = self._format == "jsonl"
            index_lines(source, info, writer, is_json=is_json, named=named)


def _format(rows: Rows, key: str) -> RowFormat:
    if rows.format != "auto":
        return rows.format
    return next(kind for end, kind in FORMATS.items() if key.lower().endswith(end))
