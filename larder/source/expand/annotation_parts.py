"""Makes parts of the entries of an annotation file: lines of a container of Larder's own.

The index of the container (`larder.source.expand.containers`) names an entry's part
``NAME/EXTENSION``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Annotations
from larder.disk import disk_errors
from larder.errors import ConfigError
from larder.manifest.digest import canonical_json
from larder.manifest.extents import extent_etags, in_own
from larder.manifest.files import read_manifest
from larder.manifest.query import Rows
from larder.manifest.sort import sort
from larder.samples.matching import ENTRIES
from larder.source.expand.annotation_entries import (
    Entry,
    entries,
    entry_parts,
    file_format,
    label_of,
    text_file,
)
from larder.source.expand.containers import INDEX, container_name, container_writer, fetch_index
from larder.source.expand.json_stream import parse_json
from larder.store.base import Buffer, ObjectInfo, Readable, Store

_NAMED = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("fields", pa.large_string(), nullable=False),
        pa.field("value", pa.large_string(), nullable=False),
        pa.field("where", pa.string(), nullable=False),
    ]
)
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Indexed:
    """The parts of the entries of the file ``key``: its index is a local file."""

    key: str
    name: str
    index: Path

    def entries(self) -> Iterator[pa.RecordBatch]:
        """Rows of `larder.samples.matching.ENTRIES`, in the order of the index."""
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
    own: Readable,
    put: Store | None,
    folder: Path,
) -> Indexed:
    """The parts of the entries of a file, read in bounded memory, and only if that was not done
    before. Without ``put``, nothing is written to the storage.
    """
    shape = [file_format(options, info.key), options.key, options.part, options.many]
    columns = [[ext, column] for ext, column in options.columns.items()]
    made_from = [info.key, info.size_bytes, info.etag, *shape, columns, label_column]
    name = container_name("jsonl", "annotations", *made_from)
    indexed = Indexed(info.key, name, folder / f"{name}.index")
    if fetch_index(own, name, indexed.index, own=True):
        return indexed
    with ExitStack() as stack:
        opened = stack.enter_context(closing(source.open(info.key, if_match=info.etag or None)))
        file = (
            _downloaded(opened, folder / f"{name}.parquet")
            if shape[0] == "parquet"
            else text_file(map(bytes, opened))
        )
        found = stack.enter_context(closing(entries(options, info.key, file, folder)))
        groups = _several(found, folder, stack) if options.many else ([each] for each in found)
        _write(indexed, groups, options, label_column, put)
    return indexed


def _copy(buffers: Iterable[Buffer], file: IO[bytes]) -> None:
    for buffer in buffers:
        file.write(buffer)


def _downloaded(buffers: Iterable[Buffer], path: Path) -> Path:
    with disk_errors(path), path.open("wb") as file:
        _copy(buffers, file)
    return path


def _write(
    indexed: Indexed,
    groups: Iterator[list[Entry]],
    options: Annotations,
    label_column: str | None,
    put: Store | None,
) -> None:
    with container_writer(put, indexed.name, indexed.index) as writer:
        while chunk := list(islice(groups, _BATCH)):
            rows = [row for group in chunk for row in _named(group, options, label_column)]
            names, contents, labels = list(zip(*rows, strict=True)) or [(), (), ()]
            writer.add(
                pa.array(names, pa.string()),
                pa.array(contents, pa.binary()),
                labels=pa.array(labels, pa.string()),
            )


def _named(
    group: list[Entry], options: Annotations, label_column: str | None
) -> Iterator[tuple[str, bytes, str | None]]:
    """The parts of an entry, with their names; the first one has its class."""
    label = label_of(label_column, group) if label_column else None
    parts = entry_parts(options, group)
    if label is not None and not parts:
        message = f"entry {group[0].name!r} has a class, but becomes no part"
        hint = "set samples.annotations.part: json"
        raise ConfigError("config.annotations", message, where=group[0].where, hint=hint)
    for part in parts:
        yield f"{group[0].name}/{part.ext}", part.data, label
        label = None


def _several(found: Iterator[Entry], folder: Path, stack: ExitStack) -> Generator[list[Entry]]:
    """The entries with the same name, each time in the order of the file."""
    ordered = stack.enter_context(
        closing(sort(Rows(_NAMED, _rows(found)), ("name", "place"), work_dir=folder))
    )
    rows = chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in ordered
    )
    for name, own in groupby(rows, key=lambda row: row[0]):
        yield [
            Entry(name, parse_json(fields, where), parse_json(value, where), where)
            for _, _, fields, value, where in own
        ]


def _rows(found: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
    place = 0
    while chunk := list(islice(found, _BATCH)):
        columns = [
            pa.array([entry.name for entry in chunk], pa.string()),
            pa.array(range(place, place + len(chunk)), pa.int64()),
            *(
                pa.array(
                    [_text(value, entry.where) for entry in chunk for value in [pick(entry)]]
                ).cast(pa.large_string())
                for pick in _PICKS
            ),
            pa.array([entry.where for entry in chunk], pa.string()),
        ]
        place += len(chunk)
        yield pa.RecordBatch.from_arrays(columns, schema=_NAMED)


_PICKS: tuple[Callable[[Entry], object], ...] = (
    lambda entry: entry.fields,
    lambda entry: entry.value,
)


def _text(value: object, where: str) -> str:
    try:
        return canonical_json(value).decode()
    except ValueError:
        message = "a number or a text that JSON has not: NaN, an infinity or invalid Unicode"
        raise ConfigError("config.annotations", message, where=where) from None
