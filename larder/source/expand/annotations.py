"""Makes parts of the entries of an annotation file, which has entries for many samples.

======= ==============================================================================
csv     a row is an entry; the first row has the names of the columns; values are texts
jsonl   a line is an entry: a JSON object
parquet a row is an entry
coco    an object of arrays: ``images``, ``annotations`` by ``image_id``, ``categories``
======= ==============================================================================

An entry is a JSON object. The entry of an image in a COCO file has the fields ``image`` and
``annotations``; an annotation has its category's name besides its ID. Parts are lines of one of
Larder's own containers, whose index (`larder.source.expand.containers`) names them
``NAME/EXTENSION``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from larder.config.models.joins import Annotations
from larder.config.models.locations import FORMATS
from larder.disk import disk_errors
from larder.errors import ConfigError
from larder.manifest.digest import canonical_json
from larder.manifest.extents import extent_etags, in_own
from larder.manifest.manifest_files import read_manifest
from larder.manifest.query import Stream
from larder.manifest.schemas import table
from larder.manifest.sort import sort
from larder.samples.matching import ENTRIES
from larder.source.expand.coco import MOST_CHARACTERS, annotation_error, coco_entries, parse_json
from larder.source.expand.containers import INDEX, Indexes, container_name
from larder.source.expand.row_values import class_name, is_unicode, json_value, table_rows
from larder.store.base import Buffer, ObjectInfo, Readable

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

_NAMED = table(name="string", place="int64", value="large_string", where="string")
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Indexed:
    """The parts of the entries of the file ``key``, with their index as a local file."""

    key: str
    name: str
    index: Path

    def entries(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of `larder.samples.matching.ENTRIES`, in the order of the index."""
        for rows in read_manifest(self.index, INDEX):
            names = pc.extract_regex(rows.column("name"), r"(?s)^(?P<name>.*)/(?P<ext>[^/]*)$")
            sizes = rows.column("size_bytes")
            yield pa.RecordBatch.from_arrays(
                [
                    names.field("name"),
                    names.field("ext"),
                    pc.binary_join_element_wise(self.key, rows.column("name"), "/"),
                    sizes,
                    extent_etags(rows.column("offset"), sizes, in_own(self.name)),
                    rows.column("checksum"),
                    rows.column("label"),
                ],
                schema=ENTRIES,
            )


def index_annotations(
    source: Readable,
    info: ObjectInfo,
    options: Annotations,
    label_column: str | None,
    indexes: Indexes,
    folder: Path,
) -> Indexed:
    """Index the parts of a file's entries in bounded memory, unless an index exists."""
    kind = file_format(options, info.key)
    shape = [kind, options.key, options.part, options.many]
    columns = [[ext, column] for ext, column in options.columns.items()]
    made_from = [info.key, info.size_bytes, info.etag, *shape, columns, label_column]
    if options.delimiter is not None:
        made_from.append(options.delimiter)
    name = container_name("jsonl", "annotations", *made_from)
    indexed = Indexed(info.key, name, folder / f"{name}.index")
    if indexes.fetch(name, indexed.index, rewritten=True):
        return indexed
    with ExitStack() as stack:
        opened = stack.enter_context(closing(source.open(info.key, if_match=info.etag or None)))
        file = (
            _downloaded(opened, folder / f"{name}.parquet")
            if kind == "parquet"
            else text_file(map(bytes, opened))
        )
        stream = stack.enter_context(closing(_entries(options, info.key, file, folder)))
        groups: Iterator[list[AnnotationEntry]] = ([entry] for entry in stream)
        if options.many:
            groups = _several(stream, kind, folder, stack)
        _write(indexed, groups, options, label_column, indexes)
    return indexed


def _downloaded(buffers: Iterable[Buffer], path: Path) -> Path:
    with disk_errors(path), path.open("wb") as file:
        file.writelines(buffers)
    return path


def _write(
    indexed: Indexed,
    groups: Iterator[list[AnnotationEntry]],
    options: Annotations,
    label_column: str | None,
    indexes: Indexes,
) -> None:
    with indexes.writer(indexed.name, indexed.index, rewritten=True) as writer:
        while chunk := list(islice(groups, _BATCH)):
            rows = [row for group in chunk for row in _named(group, options, label_column)]
            names, contents, labels = list(zip(*rows, strict=True)) or [(), (), ()]
            writer.add(
                pa.array(names, pa.string()),
                pa.array(contents, pa.binary()),
                labels=pa.array(labels, pa.string()),
            )


def _named(
    group: list[AnnotationEntry], options: Annotations, label_column: str | None
) -> Iterator[tuple[str, bytes, str | None]]:
    """Yield the parts of an entry, with their names; the first part has the class."""
    label = _label_of(label_column, group) if label_column else None
    parts = _parts(options, group)
    if label is not None and not parts:
        message = f"entry {group[0].name!r} has a class, but becomes no part"
        hint = "set samples.annotations.part: json"
        raise annotation_error(message, group[0].where, hint)
    for ext, data in parts:
        yield f"{group[0].name}/{ext}", data, label
        label = None


def _several(
    stream: Iterator[AnnotationEntry], kind: str, folder: Path, stack: ExitStack
) -> Generator[list[AnnotationEntry]]:
    """Yield groups of entries with the same name, each in the order of the file."""
    ordered = stack.enter_context(
        closing(sort(Stream(_NAMED, _rows(stream)), ("name", "place"), work_dir=folder))
    )
    rows = chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in ordered
    )
    for name, group in groupby(rows, key=lambda row: row[0]):
        values = [(parse_json(value, where), where) for _, _, value, where in group]
        yield [AnnotationEntry(name, _fields(value, kind), value, where) for value, where in values]


def _rows(stream: Iterator[AnnotationEntry]) -> Iterator[pa.RecordBatch]:
    place = 0
    while chunk := list(islice(stream, _BATCH)):
        columns = [
            pa.array([entry.name for entry in chunk], pa.string()),
            pa.array(range(place, place + len(chunk)), pa.int64()),
            pa.array([_json(entry.value, entry.where) for entry in chunk]).cast(pa.large_string()),
            pa.array([entry.where for entry in chunk], pa.string()),
        ]
        place += len(chunk)
        yield pa.RecordBatch.from_arrays(columns, schema=_NAMED)


_FORMATS = {end: kind for end, kind in FORMATS.items() if kind != "text"} | {".json": "coco"}


class AnnotationEntry(NamedTuple):
    """An entry of a file.

    Attributes:
        name: The key, the end of the key or the sample key of the entry's object.
        fields: The entry's columns; in a COCO file, the fields of the image.
        value: The entry itself.
        where: Its place, for messages.
    """

    name: str
    fields: Mapping[str, Any]
    value: Any
    where: str

    def column(self, name: str) -> Any:
        if name not in self.fields:
            raise annotation_error(f"no column {name!r}", self.where)
        return self.fields[name]


def file_format(options: Annotations, key: str) -> str:
    """Return the format as configured, or by the name; ``config.annotations`` if unknown."""
    if options.format != "auto":
        return options.format
    detected = next((kind for end, kind in _FORMATS.items() if key.lower().endswith(end)), None)
    if detected is None:
        hint = f"set samples.annotations.format: one of {', '.join(sorted(set(_FORMATS.values())))}"
        raise annotation_error("the name does not tell its format", key, hint)
    return detected


def _entries(
    options: Annotations, key: str, file: io.TextIOWrapper | Path, work_dir: Path
) -> Generator[AnnotationEntry]:
    """Yield the entries of a file in its order; for a COCO file, in the order of image IDs.

    The file is a text from `text_file`, or a local path for Parquet. An invalid file, or an entry
    without a name, is ``config.annotations``.
    """
    rows: Generator[_Row]
    kind = file_format(options, key)
    if isinstance(file, Path):
        rows = _parquet_rows(file, key)
    elif kind == "csv":
        rows = _csv_rows(file, key, options.delimiter)
    elif kind == "jsonl":
        rows = _lines(file, key)
    else:
        rows = coco_entries(file, key, work_dir)
    with _text_errors(key), closing(rows):
        for value, where in rows:
            fields = _fields(value, kind)
            yield AnnotationEntry(_name(fields, options.key, where), fields, value, where)


_Row = tuple[dict[str, Any], str]


_DELIMITERS = ",;\t|"


def default_delimiter(key: str) -> str:
    return "\t" if key.lower().endswith(".tsv") else ","


def csv_header(reader: CsvReader, delimiter: str | None, option: str) -> list[str]:
    """Return the first line that is not blank.

    Raises:
        csv.Error: The line cannot be read, is for Excel alone, or seems to have another delimiter
            than the default, and none is configured.
    """
    try:
        header = next(filter(None, reader), [])
    except csv.Error as error:  # also for quoted names
        hint = "" if delimiter else f"; set {option} if another character separates the fields"
        raise csv.Error(f"{error}{hint}") from None
    if header == ["sep=", ""]:
        raise csv.Error("'sep=' is for Excel, and names no column: remove the line")
    count, separator = "".join(header).count, reader.dialect.delimiter
    other = max(_DELIMITERS.replace(separator, ""), key=count)
    if delimiter is None and header and count(other) >= len(header):
        named, default = (char.replace("\t", "\\t") for char in (other, separator))
        hint = f'set {option}: "{named}", or "{default}" if that is right'
        raise csv.Error(f"{other!r} seems to separate the names of the columns: {hint}")
    return header


def _csv_rows(file: io.TextIOWrapper, key: str, delimiter: str | None) -> Generator[_Row]:
    csv.field_size_limit(MOST_CHARACTERS)
    reader = csv.reader(file, delimiter=delimiter or default_delimiter(key), strict=True)
    try:
        header = csv_header(reader, delimiter, "samples.annotations.delimiter")
        if len(set(header)) < len(header) or not header:
            message = "the first row has no names" if not header else "two columns with one name"
            raise annotation_error(message, f"{key}, line 1")
        for row in reader:
            where = f"{key}, line {reader.line_num}"
            if len(row) != len(header):
                if not row:
                    continue
                message = f"{len(row)} columns, but the first row names {len(header)}"
                raise annotation_error(message, where)
            yield dict(zip(header, row, strict=True)), where
    except csv.Error as error:
        where = f"{key}, line {reader.line_num}"
        raise annotation_error(f"not CSV: {error}", where) from None


def _lines(file: io.TextIOWrapper, key: str) -> Generator[_Row]:
    for number, line in enumerate(iter(lambda: file.readline(MOST_CHARACTERS), ""), 1):
        where = f"{key}, line {number}"
        if len(line) == MOST_CHARACTERS:
            message = f"a line of more than {MOST_CHARACTERS:,} characters"
            raise annotation_error(message, where)
        if line.strip():
            fields = parse_json(line, where)
            if not isinstance(fields, dict):
                raise annotation_error("not a JSON object", where)
            yield fields, where


def _parquet_rows(path: Path, key: str) -> Generator[_Row]:
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                raise annotation_error("two columns with one name", key)
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in table_rows(batch):
                    where = f"{key}, row {number}"
                    yield json_value(row, partial(_json_scalar, where)), where
                    number += 1
    except (pa.ArrowException, OSError) as error:
        message = f"not a Parquet file: {str(error).splitlines()[0]}"
        raise annotation_error(message, key) from None
    except ValueError as error:
        raise annotation_error(str(error), key, "leave out the column") from None


def _json_scalar(where: str, value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    message = f"a value of type {type(value).__name__}, which JSON has not"
    raise annotation_error(message, where, hint="leave out the column")


def _fields(value: Any, kind: str) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = value["image"] if kind == "coco" else value
    return fields


def _name(fields: Mapping[str, Any], column: str, where: str) -> str:
    name = fields.get(column)
    text = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
    if not isinstance(text, str) or not text.removeprefix("./"):
        what = "no column" if column not in fields else "no name in column"
        hint = "samples.annotations.key names the column with keys or names of objects"
        raise annotation_error(f"{what} {column!r}", where, hint)
    if not is_unicode(text):
        raise annotation_error(f"{column!r} is not valid Unicode", where)
    return text.removeprefix("./")


def _parts(options: Annotations, group: list[AnnotationEntry]) -> list[tuple[str, bytes]]:
    """Make the parts, with their extensions, of an entry or with ``many`` of a sample's entries.

    A missing column, or a value that JSON does not have, is ``config.annotations``.
    """
    where = group[0].where
    values: list[Any] = [entry.value for entry in group]
    parts = []
    if options.part is not None:
        parts.append((options.part, _json(values if options.many else values[0], where)))
    for ext, column in options.columns.items():
        values = [entry.column(column) for entry in group]
        if options.many:
            parts.append((ext, _json(values, where)))
        elif values[0] is not None:
            text = values[0]
            is_text = isinstance(text, str) and is_unicode(text)
            parts.append((ext, text.encode() if is_text else _json(text, where)))
    return parts


def _label_of(column: str, group: list[AnnotationEntry]) -> str | None:
    """Return the class that the entries name; None if the column is null.

    A value that is no text or whole number, or a second class, is ``config.label``.
    """
    labels = set()
    for entry in group:
        label, problem = class_name(column, entry.column(column))
        if problem:
            raise ConfigError("config.label", problem, where=entry.where)
        labels.add(label)
    if len(labels) > 1:
        message = f"column {column!r} gives {group[0].name!r} {len(labels)} classes"
        raise ConfigError("config.label", message, where=group[0].where)
    return labels.pop()


def _json(value: Any, where: str) -> bytes:
    try:
        return canonical_json(value)
    except ValueError:  # also for a surrogate, which is not UTF-8
        message = "a number or a text that JSON has not: NaN, an infinity or invalid Unicode"
        raise annotation_error(message, where) from None


@contextmanager
def _text_errors(key: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise annotation_error("the file is not UTF-8", key) from None


class _BufferFile(io.RawIOBase):
    def __init__(self, buffers: Iterable[bytes]) -> None:
        super().__init__()
        self._buffers = iter(buffers)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._rest:
            following = next(self._buffers, None)
            if following is None:
                return 0
            self._rest = memoryview(following).cast("B")
        count = min(len(self._rest), len(target))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def text_file(buffers: Iterable[bytes]) -> io.TextIOWrapper:
    """Return a text file of UTF-8 with or without a byte order mark; line ends are kept."""
    raw = io.BufferedReader(_BufferFile(buffers), 1024**2)
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
