"""The samples of the new segment, and the omitted rows of the other segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import Transform
from larder.growth.compare import COMPARED, Comparison, ordered_samples
from larder.growth.decision import Decision
from larder.growth.previous import Previous
from larder.jobs.results import Totals
from larder.manifest.digest import canonical_json, sha256_hex
from larder.manifest.manifest_files import ManifestFile, ManifestWriter, read_manifest
from larder.manifest.query import Stream, query
from larder.manifest.row_digest import RowDigest
from larder.manifest.schemas import SAMPLE_ORDER, SKIPPED, packed_rows, table
from larder.manifest.sort import sort, sorted_query
from larder.manifest.spool import Spool
from larder.samples.sample_order import SampleOrder, identity_parts, identity_rows
from larder.versions.omitted import Omitted


class Selected(NamedTuple):
    """The samples of the new segment, which are the first rows of a manifest of SAMPLE_ORDER.

    ``digest`` covers the ordered samples. ``read`` counts objects read from the source or the
    mirror, and ``packed`` samples read from shards of the previous version, with their bytes there.

    ``skipped`` are records of bad samples that belong to the version itself. ``skipped_digest``
    covers these records, and segments' records that no longer apply; None without any of these.
    """

    file: ManifestFile
    samples: int
    digest: str
    read: Totals
    packed: Totals
    skipped: ManifestFile | None = None
    skipped_digest: str | None = None


_SEGMENTS = table(segment="int32?", is_kept="bool?", is_alike="bool?", whole_bytes="int64?")
_SHARDS = pa.schema([COMPARED.field("segment"), COMPARED.field("shard_number")])
_SELECTED = SAMPLE_ORDER.append(COMPARED.field("place"))
_ROWS = pa.schema([("segment", pa.int32()), ("row", pa.int64())])
_RANGES = pa.schema([("segment", pa.int32()), ("start", pa.int64()), ("stop", pa.int64())])

_CHOOSE = """
    SELECT place, segment, row, bad, whole_bytes,
        is_alike AND kind IN ('unchanged', 'relabelled', 'moved') AS is_packed
    FROM compared
    LEFT JOIN segments USING (segment)
    LEFT JOIN leaving ON kind = 'unchanged'
        AND leaving.segment = compared.segment AND leaving.shard_number = compared.shard_number
    WHERE leaving.shard_number IS NOT NULL
        OR kind IN ('added', 'changed', 'relabelled', 'moved') OR kind = 'bad' AND {fresh}
"""
_CHOSEN = pa.schema(
    [
        *(COMPARED.field(name) for name in ("place", "segment", "row", "bad")),
        _SEGMENTS.field("whole_bytes"),
        ("is_packed", pa.bool_()),
    ]
)
"""The samples that go into the new segment, and which of them are packed already."""

_SELECT = """
    WITH chosen AS MATERIALIZED (SELECT * FROM choice), places AS (
        SELECT place, {
            'shard': shard, 'offset': "offset", 'length': length, 'parts': parts
        } AS packed
        FROM (
            SELECT * REPLACE (
                [part FOR part IN parts IF part.ext <> 'cls' OR label IS NULL] AS parts
            )
            FROM packed
        ) AS packed
        JOIN chosen ON is_packed AND chosen.segment = packed.segment AND chosen.row = packed.row
        WHERE list_bool_and([part.offset IS NOT NULL FOR part IN parts])
            OR list_sum([part.length FOR part IN parts]) <= whole_bytes
    )
    SELECT now.split, now.key, now.label, now.parts, places.packed, chosen.bad, place
    FROM now
    JOIN chosen USING (place)
    LEFT JOIN places USING (place)
"""
"""The samples that go into the new segment, with the place of each sample that is packed already.

The part ``cls`` of a labelled sample is made from its label. A large sample that a shard can only
give whole is read from its objects.
"""

_SKIPPED = """
    SELECT now.split, now.key, now.parts, bad, place
    FROM now
    JOIN compared USING (place)
    LEFT JOIN segments USING (segment)
    WHERE kind = 'bad' AND is_kept IS NOT TRUE
"""
"""The samples that stay left out, and whose record no segment of the version has."""

_GAPS = """
    WITH remaining AS (
        SELECT segment, row FROM compared ANTI JOIN leaving USING (segment, shard_number)
        WHERE kind = 'unchanged'
        UNION ALL
        SELECT segment, row FROM bounds
    )
    SELECT segment, row + 1 AS start, next AS stop
    FROM (
        SELECT segment, row, lead(row) OVER (PARTITION BY segment ORDER BY row) AS next
        FROM remaining
    )
    WHERE next > row + 1
"""
"""The ranges of rows between remaining rows, with a row before the first and after the last."""


class Selection:
    """The samples of the new segment, and the omitted rows, that follow from a decision.

    A sample can be packed again from its shard only if its segment has the same ``transform``, by
    the same libraries, and its shards have no fault. If its parts are no ranges of the shard, it
    may have at most ``whole_bytes``.
    """

    def __init__(
        self,
        previous: Previous,
        comparison: Comparison,
        decision: Decision,
        transform: Transform | None,
        whole_bytes: int,
        folder: Path,
    ) -> None:
        self._previous = previous
        self._comparison = comparison
        self._fresh = decision.kind == "fresh"
        self._folder = folder
        documents = [segment.document for segment in previous.segments]
        self._kept = [document.id in decision.again for document in documents]
        alike = [
            segment.document.shape.images.transform == transform and not segment.fault
            for segment in previous.segments
        ]
        numbers, limits = range(len(documents)), [whole_bytes] * len(documents)
        self._segments = _table(_SEGMENTS, numbers, self._kept, alike, limits)
        again = [decision.again.get(segment.id, segment.rows > 0) for segment in previous.segments]
        shards = [(place, at) for place in numbers for at in np.flatnonzero(again[place]).tolist()]
        self._leaving = _table(_SHARDS, *zip(*shards, strict=True))

    def samples(self, order: SampleOrder, check: str) -> Selected:
        """Return the samples of the new segment; ``check`` is for the records of bad samples."""
        inputs = {
            "compared": self._comparison.rows(),
            "segments": self._segments,
            "leaving": self._leaving,
        }
        statement = _CHOOSE.format(fresh=self._fresh)
        chosen = Spool.of(query(statement, inputs, _CHOSEN, work_dir=self._folder), _CHOSEN)
        inputs = {
            "now": ordered_samples(order),
            "choice": Stream(_CHOSEN, chosen.read()),
            "packed": self._places(chosen),
        }
        samples, read, packed, digest = 0, Totals(), Totals(), RowDigest()
        with ManifestWriter(self._folder / "selected.parquet", SAMPLE_ORDER) as writer:
            for batch in self._sorted(_SELECT, inputs, _SELECTED, "place"):
                rows = batch.select(SAMPLE_ORDER.names)
                writer.append_batch(rows)
                samples += rows.num_rows
                read += _read(rows)
                packed += _packed(rows)
                digest.update_batch(identity_rows(rows))
            for rows in read_manifest(order.file.path, SAMPLE_ORDER, first_row=order.samples):
                writer.append_batch(rows)
        skipped, skipped_digest = self._skipped(order, check)
        return Selected(
            file=writer.file,
            samples=samples,
            digest=digest.hexdigest(),
            read=read,
            packed=packed,
            skipped=skipped,
            skipped_digest=self._skipped_digest(skipped_digest),
        )

    def _places(self, chosen: Spool) -> Stream:
        packed = (
            batch.filter(batch.column("is_packed")).select(_ROWS.names) for batch in chosen.read()
        )
        rows = sort(Stream(_ROWS, packed), _ROWS.names, work_dir=self._folder)
        return self._previous.places(Spool.of(rows, _ROWS))

    def _skipped(self, order: SampleOrder, check: str) -> tuple[ManifestFile | None, str | None]:
        """Write the records of bad samples of the version itself; return file and digest."""
        if self._fresh or not self._comparison.changes.bad:
            return None, None
        inputs = {
            "now": ordered_samples(order),
            "compared": self._comparison.rows(),
            "segments": self._segments,
        }
        fields = [SAMPLE_ORDER.field(name) for name in ("split", "key", "parts", "bad")]
        schema = pa.schema([*fields, COMPARED.field("place")])
        digest = RowDigest()
        with ManifestWriter(self._folder / "skipped.parquet", SKIPPED) as writer:
            for batch in self._sorted(_SKIPPED, inputs, schema, "place"):
                parts = identity_parts(batch.column("parts"))
                records = packed_rows(batch, SKIPPED, parts=parts, check=check)
                digest.update_batch(records)
                writer.append_batch(records)
        return (writer.file, digest.hexdigest()) if writer.file.rows else (None, None)

    def _skipped_digest(self, skipped: str | None) -> str | None:
        """Digest the difference between the samples left out and the records of kept segments."""
        digests = zip(self._previous.segments, self._comparison.outdated, self._kept, strict=True)
        outdated = [[segment.id, digest] for segment, digest, kept in digests if digest and kept]
        return sha256_hex(canonical_json([skipped, outdated])) if outdated else skipped

    def _sorted(
        self, statement: str, inputs: Mapping[str, Stream], schema: pa.Schema, *by: str
    ) -> Iterator[pa.RecordBatch]:
        return sorted_query(statement, inputs, schema, by, work_dir=self._folder)

    def omitted(self) -> dict[tuple[str, str], Omitted]:
        kept = [
            (place, segment)
            for place, segment in enumerate(self._previous.segments)
            if self._kept[place]
        ]
        bounds = [(place, row) for place, segment in kept for row in (-1, segment.document.samples)]
        inputs = {
            "compared": self._comparison.rows(),
            "leaving": self._leaving,
            "bounds": _table(_ROWS, *zip(*bounds, strict=True)),
        }
        gaps = [np.zeros((0, 3), np.int64)]
        for batch in self._sorted(_GAPS, inputs, _RANGES, "segment", "start"):
            gaps.append(np.column_stack([column.to_numpy() for column in batch.columns]))
        ranges = np.concatenate(gaps)
        omitted = {
            (segment.id, split): Omitted.of_ranges(
                ranges[ranges[:, 0] == place, 1:], facts.first_row, facts.samples
            )
            for place, segment in kept
            for split, facts in segment.document.splits.items()
        }
        return {place: rows for place, rows in omitted.items() if rows.count}


def _packed(rows: pa.RecordBatch) -> Totals:
    packed = rows.column("packed").drop_null()
    lengths = packed.field("parts").flatten().field("length")
    return Totals(len(packed), pc.sum(lengths).as_py() or 0)


def _read(rows: pa.RecordBatch) -> Totals:
    absent = (rows.column(name).is_null() for name in ("packed", "bad"))
    sizes = rows.filter(pc.and_(*absent)).column("parts").flatten().field("size_bytes")
    return Totals(len(sizes), pc.sum(sizes).as_py() or 0)


def _table(schema: pa.Schema, *columns: Any) -> Stream:
    values: Sequence[Any] = columns or [[]] * len(schema)
    arrays = [pa.array(list(each), field.type) for each, field in zip(values, schema, strict=True)]
    return Stream(schema, [pa.RecordBatch.from_arrays(arrays, schema=schema)])
