"""Compares the current samples with the samples of the previous version.

A sample is unchanged if it has the same split, label and parts. A part is the same if its object
has the same key, size and etag as when it was packed. It is also the same if the previous version's
list of objects has its current key, size and etag. If only the etag differs, and etags do not tell
contents apart, as on a file system, the object is read and compared with the checksum of the part.
If only etags of a bad sample differ, the sample is checked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.growth.content_check import ObjectCheck
from larder.growth.previous import PACKED, RECORDS, Previous, PreviousSegment
from larder.jobs.manifests import read_ref
from larder.manifest.manifest_files import (
    ManifestFile,
    ManifestWriter,
    read_manifest,
    write_manifest,
)
from larder.manifest.query import Stream, query
from larder.manifest.row_digest import RowDigest
from larder.manifest.schemas import OBJECTS, SAMPLE_ORDER, columns, lists_of, packed_rows, table
from larder.manifest.sort import sorted_query
from larder.manifest.spool import Spool
from larder.samples.sample_order import SampleOrder

COMPARED = table(
    place="int64",
    key="string",
    kind="string",
    segment="int32?",
    row="int64?",
    shard_number="int32?",
    bad="string?",
)
"""One row per current sample, in the samples' order; ``place`` counts from 0.

``kind`` is a name of `Changes`. ``segment``, ``row`` and ``shard_number`` locate the sample
in the previous version, if it is there. For a bad sample, ``bad``
is the reason, and ``segment`` the segment with its record.
"""

_DOUBT = pa.struct(
    columns(
        ext="string?",
        key="string?",
        size_bytes="int64?",
        etag="string?",
        checksum="string?",
        crc32c="uint32?",
    )
)
"""A current part with no other change than its etag, and its earlier checksum."""

_MATCHED = COMPARED.append(pa.field("doubts", pa.list_(_DOUBT)))
_PARTS = pa.schema([*(COMPARED.field(name) for name in ("place", "kind", "segment")), *_DOUBT])
_SEEN = pa.schema([OBJECTS.field(name) for name in ("key", "size_bytes", "etag")])
_SAMPLE = pa.schema([SAMPLE_ORDER.field("key"), SAMPLE_ORDER.field("parts"), COMPARED.field(0)])
_PLACES = pa.schema([COMPARED.field("place")])

_MATCH = """
    WITH latest AS (
        SELECT DISTINCT ON (key) key, segment, bad, [
            {'ext': part.ext, 'source': part.source, 'etag': part.etag,
             'length': part.length, 'crc32c': 0} FOR part IN parts
        ] AS parts
        FROM records
        ORDER BY key, rank
    ), matched AS (
        SELECT
            now.place, now.key, packed.row, packed.shard_number, latest.bad,
            coalesce(packed.segment, latest.segment) AS segment,
            packed.key IS NOT NULL AS is_packed,
            packed.split <> now.split AS is_moved,
            packed.label IS DISTINCT FROM now.label AS is_relabelled,
            list_zip(now.parts, coalesce(packed.parts, latest.parts)) AS pairs,
            list_bool_and([
                pair[1].ext IS NOT DISTINCT FROM pair[2].ext
                    AND pair[1].key IS NOT DISTINCT FROM pair[2].source
                    AND pair[1].size_bytes = coalesce(pair[2].length, pair[1].size_bytes)
                FOR pair IN pairs
            ]) AS is_alike
        FROM now
        LEFT JOIN packed ON packed.key = now.key
        LEFT JOIN latest ON latest.key = now.key
    ), compared AS (
        SELECT *, CASE
            WHEN NOT is_packed THEN if(is_alike, 'bad', 'added')
            WHEN NOT is_alike THEN 'changed'
            WHEN is_moved THEN 'moved'
            WHEN is_relabelled THEN 'relabelled'
            ELSE 'unchanged'
        END AS kind
        FROM matched
    )
    SELECT
        place, key, kind, segment, row, shard_number, if(kind = 'bad', bad, NULL) AS bad, [
            {'ext': pair[1].ext, 'key': pair[1].key, 'size_bytes': pair[1].size_bytes,
             'etag': pair[1].etag, 'checksum': pair[1].checksum, 'crc32c': pair[2].crc32c}
            FOR pair IN pairs IF is_alike AND pair[1].etag <> pair[2].etag
        ] AS doubts
    FROM compared
"""

_UNSEEN = """
    SELECT place, kind, segment, part.*
    FROM (SELECT place, kind, segment, unnest(doubts) AS part FROM matched)
    ANTI JOIN objects ON objects.key = part.key
        AND objects.size_bytes = part.size_bytes AND objects.etag = part.etag
"""
"""The parts that differ from the previous version's list of objects."""

_SAMPLES = "SELECT key, parts, place FROM now SEMI JOIN places USING (place)"

_REVISED = """
    SELECT
        place, key,
        CASE
            WHEN different.place IS NULL THEN kind
            WHEN kind = 'bad' THEN 'added'
            ELSE 'changed'
        END AS kind,
        segment, row, shard_number, if(different.place IS NULL, bad, NULL) AS bad
    FROM compared
    LEFT JOIN (SELECT DISTINCT place FROM different) AS different USING (place)
"""

_COUNTS = """
    SELECT kind, segment, shard_number, count(*) AS samples
    FROM compared
    GROUP BY ALL
    ORDER BY ALL
"""
_COUNTED = pa.schema([*(COMPARED.field(at) for at in (2, 3, 5)), ("samples", pa.int64())])

_OUTDATED = """
    SELECT segment, rank, key
    FROM records
    ANTI JOIN (SELECT key FROM compared WHERE kind = 'bad') USING (key)
    WHERE segment >= 0
"""

_REMOVED = "SELECT key FROM packed ANTI JOIN compared USING (key) ORDER BY key LIMIT {most}"
_KEYS = pa.schema([COMPARED.field("key")])


class Changes(NamedTuple):
    """Numbers of samples by kind.

    ``relabelled`` have another label, ``moved`` are in another split, ``removed`` do not exist any
    more. ``bad`` were left out as bad before, and have not changed since.
    """

    unchanged: int = 0
    added: int = 0
    changed: int = 0
    relabelled: int = 0
    moved: int = 0
    removed: int = 0
    bad: int = 0

    @property
    def differing(self) -> dict[str, int]:
        """Numbers of samples that differ from the previous version, by kind, without zeros."""
        kinds = ("added", "changed", "relabelled", "moved", "removed")
        return {kind: count for kind in kinds if (count := getattr(self, kind))}

    @property
    def any(self) -> bool:
        return bool(self.differing)

    @property
    def growth_percent(self) -> float:
        """By how much the number of samples grows, in percent; 0 for a first version."""
        before = self.unchanged + self.changed + self.relabelled + self.moved + self.removed
        return 100 * (self.added - self.removed) / before if before else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The result of a comparison: ``file`` has rows of `COMPARED`.

    ``segments`` of the previous version know their ``live`` samples. ``outdated`` has a digest, for
    each segment, of its records of bad samples that no longer apply, if any.
    """

    changes: Changes
    file: ManifestFile
    segments: tuple[PreviousSegment, ...]
    outdated: tuple[str | None, ...]

    def rows(self) -> Stream:
        return _rows(self.file)


def changed_keys(
    comparison: Comparison, previous: Previous, most: int, folder: Path
) -> dict[str, tuple[str, ...]]:
    """Return the keys of the first samples that differ, by kind: at most ``most`` of each kind."""
    keys: dict[str, list[str]] = {kind: [] for kind in comparison.changes.differing}
    if "removed" in keys:
        inputs = {"packed": previous.samples(), "compared": comparison.rows()}
        statement = _REMOVED.format(most=most)
        for batch in query(statement, inputs, _KEYS, work_dir=folder):
            keys["removed"] += batch.column("key").to_pylist()
    for batch in comparison.rows().batches:
        for kind, some in keys.items():
            rows = batch.filter(pc.equal(batch.column("kind"), kind))
            some += rows.column("key")[: most - len(some)].to_pylist()
    return {kind: tuple(some) for kind, some in keys.items()}


def _rows(file: ManifestFile) -> Stream:
    return Stream(COMPARED, read_manifest(file.path, COMPARED))


def compare(
    order: SampleOrder, previous: Previous, check: str | None, content: ObjectCheck, folder: Path
) -> Comparison:
    """Compare all samples with the samples of the previous version.

    ``check`` is how images are checked: only records of bad samples with the same check count. None
    if no record counts, because bad samples are not left out.
    """
    file = _compared(order, previous, check, content, folder)
    counts = dict.fromkeys(Changes._fields, 0)
    live = [np.zeros(len(segment.shards), np.int64) for segment in previous.segments]
    for batch in query(_COUNTS, {"compared": _rows(file)}, _COUNTED, work_dir=folder):
        columns = (column.to_pylist() for column in batch.columns)
        for kind, segment, shard, samples in zip(*columns, strict=True):
            counts[kind] += samples
            if kind == "unchanged":
                live[segment][shard] = samples
    matched = sum(counts[kind] for kind in ("unchanged", "changed", "relabelled", "moved"))
    before = sum(int(segment.before.sum()) for segment in previous.segments)
    counts["removed"] = before - matched
    pairs = zip(previous.segments, live, strict=True)
    segments = tuple(replace(segment, live=samples) for segment, samples in pairs)
    return Comparison(Changes(**counts), file, segments, _outdated(previous, file, folder))


def ordered_samples(order: SampleOrder) -> Stream:
    names = ["split", "key", "label", "parts"]
    schema = pa.schema([*map(SAMPLE_ORDER.field, names), COMPARED.field("place")])

    def batches() -> Iterator[pa.RecordBatch]:
        first, path = 0, order.file.path
        for batch in read_manifest(path, SAMPLE_ORDER, columns=names, rows=order.samples):
            places = pa.array(np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            yield pa.RecordBatch.from_arrays([*batch.columns, places], schema=schema)

    return Stream(schema, batches())


def _compared(
    order: SampleOrder, previous: Previous, check: str | None, content: ObjectCheck, folder: Path
) -> ManifestFile:
    inputs = {
        "now": ordered_samples(order),
        "packed": _as_sources(previous.samples(), content),
        "records": _checked_as(previous.bad_records(), check),
    }
    doubts = Spool(_MATCHED)
    with ManifestWriter(folder / "compared.parquet", COMPARED) as writer:
        for batch in sorted_query(_MATCH, inputs, _MATCHED, ["place"], work_dir=folder):
            writer.append_batch(batch.select(COMPARED.names))
            lengths = pc.fill_null(pc.list_value_length(batch.column("doubts")), 0)
            doubts.append(batch.filter(pc.greater(lengths, 0)))
    if not doubts.num_rows:
        return writer.file
    different = _different(doubts, order, previous, content, folder)
    inputs = {"compared": _rows(writer.file), "different": Stream(_PLACES, different.read())}
    revised = sorted_query(_REVISED, inputs, COMPARED, ["place"], work_dir=folder)
    return write_manifest(folder / "revised.parquet", COMPARED, revised)


def _different(
    doubts: Spool, order: SampleOrder, previous: Previous, content: ObjectCheck, folder: Path
) -> Spool:
    """Return the places of samples with changed contents, among the samples with other etags."""
    different, bad = Spool(_PLACES), Spool(_PLACES)
    objects = previous.version.file("objects")
    inputs = {
        "matched": Stream(_MATCHED, doubts.read()),
        "objects": Stream(_SEEN, read_ref(previous.root, objects, OBJECTS, columns=_SEEN.names)),
    }
    for parts in sorted_query(_UNSEEN, inputs, _PARTS, ["place", "ext"], work_dir=folder):
        was_bad = pc.equal(parts.column("kind"), "bad")
        bad.append(parts.filter(was_bad).select(_PLACES.names))
        packed = parts.filter(pc.invert(was_bad))
        changed = packed.filter(pa.array(~content.same(packed)))
        different.append(changed.select(_PLACES.names))
    if bad.num_rows:
        inputs = {"now": ordered_samples(order), "places": Stream(_PLACES, bad.read())}
        for samples in sorted_query(_SAMPLES, inputs, _SAMPLE, ["place"], work_dir=folder):
            repaired = samples.filter(pa.array(~content.still_bad(samples)))
            different.append(repaired.select(_PLACES.names))
    return different


def _as_sources(packed: Stream, content: ObjectCheck) -> Stream:
    """Leave out the length of a part if it is not the length of its object."""
    kind = PACKED.field("parts").type

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in packed.batches:
            lists = batch.column("parts")
            parts, offsets = lists.flatten(), lists.offsets.to_numpy()
            segments = np.repeat(batch.column("segment").to_numpy(), np.diff(offsets))
            stored = pa.array(content.stored(parts.field("ext"), segments))
            columns = {field.name: parts.field(field.name) for field in kind.value_type}
            columns["length"] = pc.if_else(stored, None, columns["length"])
            sources = lists_of(kind, columns.__getitem__, offsets - offsets[0])
            yield packed_rows(batch, PACKED, parts=sources)

    return Stream(PACKED, batches())


def _checked_as(records: Stream, check: str | None) -> Stream:
    batches = (batch.filter(pc.equal(batch.column("check"), check)) for batch in records.batches)
    return Stream(RECORDS, batches if check else ())


def _outdated(previous: Previous, file: ManifestFile, folder: Path) -> tuple[str | None, ...]:
    """Return a digest of the records that no longer apply, for each segment with such records."""
    digests: list[RowDigest | None] = [None] * len(previous.segments)
    order = ["segment", "rank", "key"]
    schema = pa.schema([RECORDS.field(name) for name in order])
    inputs = {"records": previous.bad_records(), "compared": _rows(file)}
    if previous.version.files_of("skipped"):
        for batch in sorted_query(_OUTDATED, inputs, schema, order, work_dir=folder):
            for place in pc.unique(batch.column("segment")).to_pylist():
                digest = digests[place] = digests[place] or RowDigest()
                rows = batch.filter(pc.equal(batch.column("segment"), place))
                digest.update_batch(rows.select(["key"]))
    return tuple(digest.hexdigest() if digest else None for digest in digests)
