"""``source.rows``: selects tables of the source, and makes objects of their rows.

Rows of CSV and Parquet are written into a container of Larder's own, as canonical JSON; lines are
ranges of their object (`larder.source.expand.line_rows`).
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from larder.config.models.locations import FORMATS, RowFormat, TableRows
from larder.manifest.digest import canonical_json
from larder.manifest.extents import in_object, in_own
from larder.samples.arrow_columns import Flags, column_flags
from larder.source.expand.annotations import csv_header, default_delimiter, text_file
from larder.source.expand.archives import COMPRESSED
from larder.source.expand.containers import ContainerWriter, Indexes, container_name, identity
from larder.source.expand.expanded import Container, Expansion
from larder.source.expand.line_rows import MAX_ROW_BYTES, index_lines, row_error
from larder.source.expand.row_values import (
    NO_PARTS,
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

_COMPRESSED = re.compile(COMPRESSED, re.IGNORECASE)

_CSV_ROWS = 1_000
_BATCH_BYTES = 16 << 20
_MOST_ROWS = 4_096
_BUFFER_BYTES = 1 << 20


def write_csv_rows(
    source: Readable,
    info: ObjectInfo,
    writer: ContainerWriter,
    *,
    delimiter: str | None,
    named: Named,
) -> None:
    """Add the rows of a CSV file with a header, as JSON objects of strings by column.

    A quoted field may have newlines. Rows are numbered from 0, without the header and blank lines.
    A byte order mark at the beginning is left out. The first or last column may have no name, like
    the index of pandas. ``delimiter`` is None for a comma, or a tab in ``.tsv``.
    """
    where = object_url(source.url, info.key)
    csv.field_size_limit(MAX_ROW_BYTES)
    with (
        source.open(info.key, if_match=info.etag or None) as opened,
        text_file(map(bytes, opened)) as text,
    ):
        separator = delimiter or default_delimiter(info.key)
        reader = csv.reader(_lines(text, where), delimiter=separator, strict=True)
        try:
            header = csv_header(reader, delimiter, "source.rows.delimiter")
            if not header or not all(header[1:-1]):
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
    """Yield the lines of a file; refuse a line that is too long."""
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
    """Return the names and the classes of rows; ``number`` is the first row's number."""
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
    available: Sequence[str],
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
        if name is not None and available.count(name) > 1:
            message = (
                f"{name!r}, which {option} names, is more than one column or field of a struct"
            )
            raise row_error(where, f"{message}: rename one of them")


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
    """Add the rows of a Parquet file: a part per column with an extension, and JSON of the others.

    ``columns`` has the extensions of parts, and None for columns to leave out. ``a.b`` is field
    ``b`` of the struct ``a``. Binary columns must have an extension or be left out. A null makes no
    part.
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
            taken = _taken_columns(file.schema_arrow, columns, named, where)
            number = 0
            for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                _add_batch(writer, batch, taken, number, named)
                number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        if raw.error is not None:
            raise raw.error from None
        message = f"not a Parquet file that can be read: {str(error).splitlines()[0]}"
        raise row_error(where, message) from None


def _batch_rows(metadata: Any) -> int:
    """Return the number of rows in a batch of about 16 MiB."""
    size_bytes = sum(
        metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)
    )
    each = max(1, size_bytes // max(1, metadata.num_rows))
    return max(1, min(_MOST_ROWS, int(_BATCH_BYTES // each)))


_Steps = tuple[str, ...]
"""The name of a column, followed by names of nested fields of structs."""


class _Taken(NamedTuple):
    """The use of the columns of a table.

    Attributes:
        steps: Columns and fields of structs, by name.
        parts: The extension of each column that becomes a part; None leaves the column out.
        rest: Columns with other values, which are in the part ``json``.
    """

    steps: Mapping[str, _Steps]
    parts: Mapping[_Steps, str | None]
    rest: Sequence[str]


def _taken_columns(
    schema: pa.Schema, columns: Mapping[str, str | None], named: Named, where: str
) -> _Taken:
    fields = list(_fields(schema))
    names = [".".join(steps) for steps, _ in fields]
    _check_names(schema.names, names, columns, named, where)
    steps_of = {name: steps for name, (steps, _) in zip(names, fields, strict=True)}
    parts = {steps_of[name]: ext for name, ext in columns.items()}
    rest = dict[str, None]()
    for name, (steps, kind) in zip(names, fields, strict=True):
        if parts.get(steps) is not None and not _is_bytes(kind):
            message = f"column {name!r} is of type {kind}: only strings and binary values"
            raise row_error(where, f"{message} can be parts of their own")
        if any(steps[: at + 1] in parts for at in range(len(steps))):
            continue
        if _is_binary(kind):
            message = f"column {name!r} has binary values: give it an extension, or null to leave"
            raise row_error(where, f"{message} it out, as in source.rows.columns: {{{name}: jpg}}")
        if not pa.types.is_struct(kind) or not kind.num_fields:
            rest[steps[0]] = None
    return _Taken(steps_of, parts, list(rest))


def _fields(schema: pa.Schema) -> Iterator[tuple[_Steps, pa.DataType]]:
    """Yield the columns, and the fields of structs."""
    waiting: list[tuple[_Steps, pa.DataType]] = [((field.name,), field.type) for field in schema]
    while waiting:
        steps, kind = waiting.pop(0)
        yield steps, kind
        if pa.types.is_struct(kind):
            waiting += [((*steps, inner.name), inner.type) for inner in kind]


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


def _values(batch: pa.RecordBatch, steps_of: Mapping[str, _Steps], name: str) -> list[Any]:
    """Return the values of a column or of a struct's field; null if the struct is null."""
    column = pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)
    for step in steps_of[name]:
        column = column.flatten()[column.type.get_field_index(step)]
    return table_values(column, name)


def _add_batch(
    writer: ContainerWriter, batch: pa.RecordBatch, taken: _Taken, number: int, named: Named
) -> None:
    values_of = partial(_values, batch, taken.steps)
    names, labels = _named(named, values_of, number, batch.num_rows)
    empty = [] if taken.rest else list(range(batch.num_rows))
    for steps, ext in taken.parts.items():
        if ext is not None:
            values = values_of(".".join(steps))
            present = [at for at, value in enumerate(values) if value is not None]
            given = (values[at] for at in present)
            raw = [value.encode() if isinstance(value, str) else value for value in given]
            classes = [labels[at] for at in present]
            _add(writer, [names[at] for at in present], ext, raw, classes)
            empty = [at for at in empty if values[at] is None]
    if taken.rest:
        rest = [_without(batch.column(name), taken.parts, (name,)) for name in taken.rest]
        rows = table_rows(pa.RecordBatch.from_arrays(rest, names=taken.rest))
        for row in rows:
            for steps in taken.parts:
                _leave_out(row, steps)
        values = [canonical_json(json_value(row, _json_scalar)) for row in rows]
        _add(writer, names, "json", values, labels)
    if empty:
        without = [RowName(names[at].name, names[at].problem or NO_PARTS) for at in empty]
        ext = next(filter(None, taken.parts.values()), "json")
        _add(writer, without, ext, [b""] * len(empty), [None] * len(empty))


def _without(column: pa.Array, parts: Collection[_Steps], steps: _Steps) -> pa.Array:
    """Replace fields that become parts or are left out by nulls: their values need not be read."""
    if steps in parts:
        return pa.nulls(len(column))
    if not pa.types.is_struct(column.type) or not column.type.num_fields:
        return column
    names = [field.name for field in column.type]
    pairs = zip(column.flatten(), names, strict=True)
    fields = [_without(each, parts, (*steps, name)) for each, name in pairs]
    return pa.StructArray.from_arrays(fields, names=names, mask=column.is_null())


def _leave_out(row: dict[str, Any], steps: _Steps) -> None:
    """Remove a column or field that becomes a part or is left out, and structs left empty."""
    *folders, last = steps
    inner: Any = row
    for folder in folders:
        inner = inner.get(folder) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(last, None)
        if not inner and folders:
            _leave_out(row, tuple(folders))


def _json_scalar(value: Any) -> Any:
    """Convert NaN and infinities to null, and bytes, which occur only in lists, to Base64."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    return b64encode(value).decode() if isinstance(value, bytes) else value


def row_expansion(
    rows: TableRows, others: Collection[str], label: str | None, source: Readable, indexes: Indexes
) -> Expansion:
    """Return the expansion of tables.

    ``others`` are never tables, whatever their keys: label files and annotation files. ``label`` is
    the column with the class of each row, if any.
    """

    def indexed(info: ObjectInfo, path: Path, executor: Executor) -> Container:
        del executor  # a table is read from front to back
        table = _SampleTable(rows, label, info)
        read = not indexes.fetch(table.name, path, rewritten=table.rewritten)
        if read:
            with indexes.writer(table.name, path, rewritten=table.rewritten) as writer:
                table.read(source, writer)
        return Container(info, table.end, last_counts=False, filtered=False, read=read)

    def matches(keys: pa.Array) -> Flags:
        taken = pc.is_in(keys, pa.array(sorted(others), pa.string()))
        return _matching(rows, keys) & ~column_flags(taken)

    return Expansion(matches, indexed, _refused, rows.exclude)


def _refused(key: str) -> str | None:
    compressed = _COMPRESSED.search(key)
    return "a compressed table is not read: decompress it, or exclude it" if compressed else None


def _matching(rows: TableRows, keys: pa.Array) -> Flags:
    if rows.files is not None:
        return KeyRule(rows.files)(keys)
    ends = [re.escape(end) for end, kind in FORMATS.items() if rows.format in ("auto", kind)]
    pattern = f"(?i)(?:{'|'.join(ends)})(?:$|{COMPRESSED})"
    return column_flags(pc.match_substring_regex(keys, pattern))


class _SampleTable:
    """An object whose rows are samples: ranges, or ``rewritten`` into Larder's own container.

    ``end`` is the end of the etags of its rows.
    """

    def __init__(self, rows: TableRows, label: str | None, info: ObjectInfo) -> None:
        self._rows = rows
        self._label = label
        self._info = info
        self._format = _format(rows, info.key)
        self.rewritten = self._format in ("csv", "parquet")
        made_from = [*identity(info), self._format, rows.key]
        if self._format == "csv":
            made_from.append(rows.delimiter or default_delimiter(info.key))
        if self._format == "parquet":
            made_from.append(dict(rows.columns))
        if label is not None:
            made_from.append(["label", label])
        self.name = container_name("rows" if self.rewritten else "lines", *made_from)
        self.end = in_own(self.name) if self.rewritten else in_object(info.key, info.etag)

    def read(self, source: Readable, writer: ContainerWriter) -> None:
        info, named = self._info, Named(self._rows.key, self._label)
        if self._format == "csv":
            write_csv_rows(source, info, writer, delimiter=self._rows.delimiter, named=named)
        elif self._format == "parquet":
            columns = self._rows.columns
            write_parquet_rows(source, info, writer, columns=columns, named=named)
        else:
            is_json = self._format == "jsonl"
            index_lines(source, info, writer, is_json=is_json, named=named)


def _format(rows: TableRows, key: str) -> RowFormat:
    if rows.format != "auto":
        return rows.format
    return next(kind for end, kind in FORMATS.items() if key.lower().endswith(end))
