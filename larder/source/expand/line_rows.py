"""Rows that are lines of an object, JSON Lines or text. Each row is a range of the object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.errors import ObjectError
from larder.manifest.digest import format_crc32c
from larder.source.expand.coco import JSON
from larder.source.expand.containers import ContainerWriter
from larder.source.expand.row_values import Named, RowName, class_name, key_names, row_names
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable

MAX_ROW_BYTES = 64 << 20
"""Maximum length of a row."""

_PIECE_BYTES = 4 << 20
_MOST_LINES = 4_096
"""Lines held as Python objects at a time, because a piece may have millions of lines."""

_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10

_Numbers = npt.NDArray[np.int64]


def row_error(where: str, message: str) -> ObjectError:
    hint = "fix it, or exclude it with source.exclude"
    return ObjectError("object.format", message, where=where, hint=hint)


def index_lines(
    source: Readable, info: ObjectInfo, writer: ContainerWriter, *, is_json: bool, named: Named
) -> None:
    """Add the lines of an object that are not blank to an index.

    A line ends before a newline, or before a carriage return and a newline. Rows have the numbers
    of their lines, from 0. A byte order mark at the beginning is left out.

    Memory: some pieces of 4 MiB, some thousand lines, or a few times the longest line.
    """
    number = 0
    ext = "json" if is_json else "txt"
    for offset, data in _pieces(source, info):
        everything = _lines(data)
        for first in range(0, len(everything[0]), _MOST_LINES):
            starts, stops = (bounds[first : first + _MOST_LINES] for bounds in everything)
            filled = np.flatnonzero(stops > starts)
            lines = [data[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
            wanted = [at for at in filled.tolist() if lines[at].strip()]
            names, labels = _names(lines, wanted, number, is_json=is_json, named=named)
            sums = (format_crc32c(google_crc32c.value(lines[at])) for at in wanted)
            writer.add_ranges(
                pa.array([f"{name.name}.{ext}" for name in names], pa.string()),
                pa.array(offset + starts[wanted], pa.int64()),
                pa.array((stops - starts)[wanted], pa.int64()),
                pa.array(sums, pa.string()),
                pa.array([name.problem for name in names], pa.string()),
                pa.array(labels, pa.string()),
            )
            number += len(lines)


def _pieces(source: Readable, info: ObjectInfo) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of complete lines of an object, each with its offset."""
    where = object_url(source.url, info.key)
    first = True
    with source.open(info.key, if_match=info.etag or None) as reader:
        offset, buffers, size, ended = 0, list[bytes](), 0, False
        for buffer in reader:
            buffers.append(bytes(buffer))
            size += len(buffers[-1])
            ended = ended or b"\n" in buffers[-1]
            if not ended and size > MAX_ROW_BYTES:
                message = f"a line of more than {MAX_ROW_BYTES:,} bytes at byte {offset:,}"
                raise row_error(where, message)
            if ended and size >= _PIECE_BYTES:
                data = b"".join(buffers)
                end = data.rindex(b"\n") + 1
                yield from _without_mark(offset, data[:end], first=first)
                first = ended = False
                offset, buffers = offset + end, [data[end:]]
                size = len(buffers[0])
        yield from _without_mark(offset, b"".join(buffers), first=first)


def _without_mark(offset: int, data: bytes, *, first: bool) -> Iterator[tuple[int, bytes]]:
    """Yield a piece, unless empty, without a byte order mark before the first line."""
    skipped = len(_BOM) if first and data.startswith(_BOM) else 0
    if len(data) > skipped:
        yield offset + skipped, data[skipped:]


def _lines(data: bytes) -> tuple[_Numbers, _Numbers]:
    """Return starts and ends of the lines in a piece, without their line ends."""
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == _NEWLINE)
    if array[-1] != _NEWLINE:
        ends = np.append(ends, len(array))
    starts = np.append(0, ends[:-1] + 1)
    returns = (ends > starts) & (array[np.maximum(ends - 1, 0)] == ord("\r"))
    return starts, ends - returns


def _names(
    lines: list[bytes], wanted: list[int], first: int, *, is_json: bool, named: Named
) -> tuple[list[RowName], list[str | None]]:
    names, labels = [], []
    for at in wanted:
        (name,) = row_names(first + at, 1)
        value, problem = _parsed(lines[at]) if is_json else (None, _not_utf8(lines[at]))
        label = None
        if problem is None and named.key is not None:
            (name,) = key_names(named.key, [_field(value, named.key)], first + at)
        if problem is None and named.label is not None:
            label, problem = class_name(named.label, _field(value, named.label))
        names.append(name if problem is None else RowName(name.name, problem))
        labels.append(label)
    return names, labels


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _not_utf8(line: bytes) -> str | None:
    try:
        line.decode()
    except UnicodeDecodeError:
        return "the line is not UTF-8"
    return None


def _parsed(line: bytes) -> tuple[Any, str | None]:
    """Parse a line of JSON; return its value, and the problem if the line is invalid."""
    try:
        return JSON.decode(line.decode()), None
    except UnicodeDecodeError:
        return None, "the line is not UTF-8"
    except (ValueError, RecursionError) as error:
        return None, f"the line is not JSON: {str(error) or 'nested too deeply'}"
