"""Finds the samples that the entries of annotation files are of, in bounded memory.

An entry names an object by its key, or by the end of its key from a slash on: ``1.jpg`` or
``cats/1.jpg`` for ``train/cats/1.jpg``; a name without a dot behind its last slash names a sample
in the same way. Where several samples fit, the one with exactly this key counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import ConfigError, Failure, Failures
from larder.manifest.query import Stream
from larder.manifest.sort import (
    SortedFile,
    aligned,
    sort,
    sort_to_file,
    whole_keys,
    work_folder,
    write_rows,
)

ENTRIES = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("ext", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("checksum", pa.string()),
        pa.field("label", pa.string()),
    ]
)
"""One row per part of an entry: the name of the entry, the part as an object, and the class that it
gives its sample, or null."""

MATCHED = pa.schema(
    [
        pa.field("sample", pa.string(), nullable=False),
        pa.field("object", pa.string(), nullable=False),
        *(ENTRIES.field(name) for name in ENTRIES.names[1:]),
    ]
)
"""One row per part: its sample, and an object of this sample."""

_OBJECTS = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("sample", pa.string(), nullable=False),
        pa.field("object", pa.string(), nullable=False),
        pa.field("partial", pa.bool_(), nullable=False),
    ]
)

_Stream = Callable[[], Iterable[pa.RecordBatch]]


class Matching:
    """Matches entries, rows of `ENTRIES` in any order, with objects' ``sample`` and ``key``.

    ``unfit`` are the names of entries that fit no object, after `rows`.
    """

    def __init__(self, entries: _Stream, objects: Iterable[pa.RecordBatch], work_dir: Path) -> None:
        self.unfit = Failures()
        self._entries = entries
        self._objects = objects
        self._work_dir = work_dir

    def rows(self) -> Iterator[pa.RecordBatch]:
        with work_folder(self._work_dir) as folder:
            # One after the other, so that there is the memory of one sort at a time.
            entries = sort_to_file(
                Stream(ENTRIES, self._entries()), ("name", "key", "etag"), folder / "entries.arrow"
            )
            matched = write_rows(Stream(MATCHED, self._pieces(entries)), folder / "matched.arrow")
            yield from matched.read()

    def _pieces(self, entries: SortedFile) -> Iterator[pa.RecordBatch]:
        depths = _depths(entries.read())
        objects = (_named(batch, depths) for batch in self._objects)
        by = ("name", "partial", "sample", "object")
        with closing(sort(Stream(_OBJECTS, objects), by, work_dir=self._work_dir)) as named:
            pieces = aligned(
                Stream(ENTRIES, whole_keys(entries.read(), "name")),
                Stream(_OBJECTS, whole_keys(named, "name")),
                ("name",),
            )
            for entry_rows, object_rows in pieces:
                if entry_rows.num_rows:
                    yield self._matched(entry_rows, object_rows)

    def _note(self, rows: pa.RecordBatch) -> None:
        """Count the entries of some parts, all of which are there."""
        names = rows.column("name")
        first = pc.index_in(pc.unique(names), names)
        shown = rows.take(first).slice(0, self.unfit.room).to_pylist()
        failures = (
            Failure(row["key"], "config.missing_part", f"the entry {row['name']} fits no sample")
            for row in shown
        )
        self.unfit.add_counted(failures, len(first))

    def _matched(self, entries: pa.RecordBatch, objects: pa.RecordBatch) -> pa.RecordBatch:
        places = pc.index_in(entries.column("name"), objects.column("name"))
        missing = places.is_null()
        self._note(entries.filter(missing))
        entries, places = entries.filter(pc.invert(missing)), places.drop_null()
        _check_unique(objects, pc.unique(places).to_numpy())
        columns = [objects.column(name).take(places) for name in ("sample", "object")]
        columns += [entries.column(name) for name in ENTRIES.names[1:]]
        return pa.RecordBatch.from_arrays(columns, schema=MATCHED)


def _depths(entries: Iterable[pa.RecordBatch]) -> tuple[list[int], list[int]]:
    """The numbers of segments of the names of objects, and of samples."""
    depths: tuple[set[int], set[int]] = (set(), set())
    for batch in entries:
        names = batch.column("name")
        segments = pc.add(pc.count_substring(names, "/"), 1)
        of_object = pc.match_substring_regex(names, r"\.[^/]*$")
        for numbers, flags in zip(depths, (of_object, pc.invert(of_object)), strict=True):
            numbers.update(pc.unique(segments.filter(flags)).to_pylist())
    return sorted(depths[0]), sorted(depths[1])


def _named(batch: pa.RecordBatch, depths: tuple[Sequence[int], Sequence[int]]) -> pa.RecordBatch:
    """What entries may call objects: rows of `_OBJECTS`."""
    samples, keys = batch.column("sample"), batch.column("key")
    rows = []
    for texts, wanted in ((keys, depths[0]), (samples, depths[1])):
        for depth in wanted:
            pattern = rf"(?s)^(?P<before>.*/)?(?P<name>[^/]*(?:/[^/]*){{{depth - 1}}})$"
            groups = pc.extract_regex(texts, pattern)
            partial = pc.not_equal(pc.struct_field(groups, "before"), "")
            columns = [pc.struct_field(groups, "name"), samples, keys, partial]
            named = pa.RecordBatch.from_arrays(columns, names=_OBJECTS.names)
            rows.append(named.filter(groups.is_valid()).cast(_OBJECTS))
    return pa.concat_batches([pa.RecordBatch.from_pylist([], schema=_OBJECTS), *rows])


def _check_unique(objects: pa.RecordBatch, places: npt.NDArray[np.int32]) -> None:
    """Check that names fit one sample each: those of which these are the first rows."""
    if objects.num_rows < 2:
        return
    one, other = objects.slice(0, objects.num_rows - 1), objects.slice(1)
    alike = {
        name: pc.equal(one.column(name), other.column(name)).to_numpy(zero_copy_only=False)
        for name in ("name", "partial", "sample")
    }
    group = np.append(0, np.cumsum(~alike["name"]))
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    partial = objects.column("partial").to_numpy(zero_copy_only=False)
    counts = partial == partial[starts][group]  # where a whole key fits, no other does
    used = np.zeros(len(starts), np.bool_)
    used[group[places]] = True
    several = alike["name"] & alike["partial"] & ~alike["sample"] & counts[:-1] & used[group[:-1]]
    if several.any():
        at = int(np.argmax(several))
        first, second = (rows.column("sample")[at].as_py() for rows in (one, other))
        raise ConfigError(
            "config.annotations",
            f"the entry fits several samples, such as {first} and {second}",
            where=one.column("name")[at].as_py(),
            hint="use the whole keys of objects in the column samples.annotations.key",
        )
