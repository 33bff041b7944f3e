"""Match entries of annotation files with samples, in bounded memory.

An entry names an object by its key, or by the end of its key after a slash: ``1.jpg`` or
``cats/1.jpg`` for ``train/cats/1.jpg``. A name without a dot after its last slash names a sample in
the same way. If several samples fit, the sample with exactly this key counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import ConfigError, Failure, Failures
from larder.manifest.query import Stream
from larder.manifest.schemas import columns, table
from larder.manifest.sort import sorted_query

ENTRIES = table(
    name="string",
    ext="string",
    key="string",
    size_bytes="int64",
    etag="string",
    checksum="string?",
    label="string?",
)
"""One row per part of an entry: the name of the entry, the part as an object, and the class for the
sample, or null."""

MATCHED = pa.schema(
    [
        *columns(sample="string", object="string"),
        *(ENTRIES.field(name) for name in ENTRIES.names[1:]),
    ]
)
"""One row per part: its sample, and an object of this sample."""

_NAMES = pa.schema([ENTRIES.field("name")])
_OBJECTS = table(name="string", sample="string", object="string", partial="bool")

_MATCH = """
    WITH fitting AS (
        SELECT
            name,
            min(sample) AS sample,
            max(sample) AS other_sample,
            arg_min(object, {'sample': sample, 'object': object}) AS object
        FROM objects SEMI JOIN names USING (name)
        GROUP BY name, partial
        QUALIFY row_number() OVER (PARTITION BY name ORDER BY partial) = 1
    )
    SELECT
        sample, object, entries.* EXCLUDE (name), name, other_sample,
        row_number() OVER (PARTITION BY name ORDER BY entries.key, etag) = 1 AS is_first
    FROM entries LEFT JOIN fitting USING (name)
"""
"""Each entry with its fitting sample; if a whole key fits, partial keys do not count."""

_FITTED = pa.schema(
    [
        *(field.with_nullable(True) for field in MATCHED),
        *columns(name="string", other_sample="string?", is_first="bool"),
    ]
)

_ORDER = ("name", "key", "etag")

_Stream = Callable[[], Iterable[pa.RecordBatch]]


class Matching:
    """A matching of entries, rows of `ENTRIES` in any order, with objects' ``sample`` and ``key``.

    After `rows`, ``unfit`` has the names of entries that fit no object.
    """

    def __init__(self, entries: _Stream, objects: Iterable[pa.RecordBatch], work_dir: Path) -> None:
        self.unfit = Failures()
        self._entries = entries
        self._objects = objects
        self._work_dir = work_dir

    def rows(self) -> Iterator[pa.RecordBatch]:
        depths = _depths(self._entries())
        inputs = {
            "entries": Stream(ENTRIES, self._entries()),
            "names": Stream(_NAMES, (batch.select(["name"]) for batch in self._entries())),
            "objects": Stream(_OBJECTS, (_named(batch, depths) for batch in self._objects)),
        }
        for batch in sorted_query(_MATCH, inputs, _FITTED, _ORDER, work_dir=self._work_dir):
            _check_unique(batch)
            fits = batch.column("sample").is_valid()
            self._note(batch.filter(pc.and_(batch.column("is_first"), pc.invert(fits))))
            yield batch.filter(fits).select(MATCHED.names).cast(MATCHED)

    def _note(self, rows: pa.RecordBatch) -> None:
        failures = (
            Failure(row["key"], "config.missing_part", f"the entry {row['name']} fits no sample")
            for row in rows.slice(0, self.unfit.room).to_pylist()
        )
        self.unfit.add_counted(failures, rows.num_rows)


def _depths(entries: Iterable[pa.RecordBatch]) -> tuple[list[int], list[int]]:
    """Return the numbers of path segments in names of objects, and in names of samples."""
    depths: tuple[set[int], set[int]] = (set(), set())
    for batch in entries:
        names = batch.column("name")
        segments = pc.add(pc.count_substring(names, "/"), 1)
        of_object = pc.match_substring_regex(names, r"\.[^/]*$")
        for numbers, flags in zip(depths, (of_object, pc.invert(of_object)), strict=True):
            numbers.update(pc.unique(segments.filter(flags)).to_pylist())
    return sorted(depths[0]), sorted(depths[1])


def _named(batch: pa.RecordBatch, depths: tuple[Sequence[int], Sequence[int]]) -> pa.RecordBatch:
    """Return the possible names of objects in entries, as rows of `_OBJECTS`."""
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


def _check_unique(rows: pa.RecordBatch) -> None:
    """Check that entries fit one sample each."""
    several = rows.filter(pc.not_equal(rows.column("sample"), rows.column("other_sample")))
    for row in several.slice(0, 1).to_pylist():
        raise ConfigError(
            "config.annotations",
            f"the entry fits several samples, such as {row['sample']} and {row['other_sample']}",
            where=row["name"],
            hint="use the whole keys of objects in the column samples.annotations.key",
        )
