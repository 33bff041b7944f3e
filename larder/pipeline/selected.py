"""The samples of the new segment: selected from all samples by what a comparison found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import Transform
from larder.jobs.results import Totals
from larder.manifest.digest import canonical_json, sha256_hex
from larder.manifest.files import ManifestFile, ManifestWriter, read_manifest
from larder.manifest.rows import RowDigest
from larder.manifest.schemas import SAMPLE_ORDER, SKIPPED
from larder.pipeline.compare import Comparison, Kind
from larder.pipeline.decide import Decision
from larder.pipeline.previous import Previous
from larder.samples.order import SampleOrder, identity_parts

_Flags = npt.NDArray[np.bool_]

_PACKED = SAMPLE_ORDER.field("packed").type
_PACKED_PARTS = _PACKED.field("parts").type


@dataclass(frozen=True, slots=True)
class Selected:
    """The samples of the new segment, which are the first rows of a manifest of SAMPLE_ORDER.

    ``digest`` is sha256 hex over the ordered samples, as in `larder.samples.order.SampleOrder`.
    ``read`` are objects that are read from the source or the mirror, and their bytes; ``packed``
    are samples that are read from shards of the previous version, and their bytes there;
    ``uncopied`` are objects without a known copy in the mirror that need one.

    ``skipped`` are records of bad samples that belong to the version itself; ``skipped_digest`` is
    sha256 hex over these records, and over those of segments that do not apply any more; None if
    there are neither.
    """

    file: ManifestFile
    samples: int
    digest: str
    read: Totals
    packed: Totals
    uncopied: Totals
    skipped: ManifestFile | None = None
    skipped_digest: str | None = None


def select_all(order: SampleOrder) -> Selected:
    return Selected(
        file=order.file,
        samples=order.samples,
        digest=order.digest,
        read=Totals(order.objects, order.object_bytes),
        packed=Totals(),
        uncopied=Totals(order.uncopied, order.uncopied_bytes),
    )


def select_samples(
    order: SampleOrder,
    comparison: Comparison,
    decision: Decision,
    previous: Previous,
    check: str,
    folder: Path,
    transform: Transform | None = None,
) -> Selected:
    """Select the samples of the new segment. Memory does not depend on their number.

    Only samples of segments with the same ``transform``, by the same libraries, can be packed again
    from their shards. ``check`` is for the records of bad samples.
    """
    selection = _Selection(comparison, decision, previous, check, transform)
    with (
        ManifestWriter(folder / "selected.parquet", SAMPLE_ORDER) as writer,
        ManifestWriter(folder / "skipped.parquet", SKIPPED) as skipped,
    ):
        first_row = 0
        for batch in read_manifest(order.file.path, SAMPLE_ORDER, rows=order.samples):
            rows, records = selection.of(batch, first_row)
            writer.append_batch(rows)
            skipped.append_batch(records)
            first_row += batch.num_rows
        samples = selection.samples
        for batch in read_manifest(order.file.path, SAMPLE_ORDER, first_row=order.samples):
            selection.count_uncopied(batch)
            writer.append_batch(batch)
    has_skipped = skipped.file.rows > 0
    return Selected(
        file=writer.file,
        samples=samples,
        digest=selection.digest.hexdigest(),
        read=selection.read,
        packed=selection.packed,
        uncopied=selection.uncopied,
        skipped=skipped.file if has_skipped else None,
        skipped_digest=_skipped_digest(
            selection.skipped_digest.hexdigest() if has_skipped else None,
            comparison,
            decision,
            previous,
        ),
    )


def _skipped_digest(
    skipped: str | None, comparison: Comparison, decision: Decision, previous: Previous
) -> str | None:
    """Which bad samples the version leaves out, as far as its segments do not say it."""
    outdated = [
        [segment.id, digest]
        for segment, digest in zip(previous.segments, comparison.outdated, strict=True)
        if digest is not None and segment.id in decision.again
    ]
    return sha256_hex(canonical_json([skipped, outdated])) if outdated else skipped


class _Selection:
    def __init__(
        self,
        comparison: Comparison,
        decision: Decision,
        previous: Previous,
        check: str,
        transform: Transform | None,
    ) -> None:
        self.samples = 0
        self.read = self.packed = self.uncopied = Totals()
        self.digest, self.skipped_digest = RowDigest(), RowDigest()
        self._comparison = comparison
        self._previous = previous
        self._check = check
        self._fresh = decision.kind == "fresh"
        self._kept = [segment.id in decision.again for segment in previous.segments]
        self._again = [decision.again.get(segment.id) for segment in previous.segments]
        self._whole = all(self._kept) and not any(flags.any() for flags in decision.again.values())
        stored = [segment.document.shape.images.transform for segment in previous.segments]
        self._alike = np.array([each == transform for each in stored], np.bool_)
        self._ids = pa.array([segment.id for segment in previous.segments], pa.string())

    def of(self, batch: pa.RecordBatch, first_row: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows of the new segment, and records of bad samples for the version itself."""
        stop_row = first_row + batch.num_rows
        kinds = np.asarray(self._comparison.kinds[first_row:stop_row])
        positions = np.asarray(self._comparison.positions[first_row:stop_row])
        then = _PreviousRows(self._comparison, positions)
        goes = np.isin(kinds, (Kind.ADDED, Kind.CHANGED, Kind.RELABELLED, Kind.MOVED))
        bad = kinds == Kind.BAD
        records = pa.RecordBatch.from_pylist([], schema=SKIPPED)
        if self._fresh:
            goes[:] = True
        else:
            unchanged = np.flatnonzero(kinds == Kind.UNCHANGED)
            if not self._whole and len(unchanged):
                goes[unchanged] = self._packed_again(then.rows(unchanged))
        chosen = np.flatnonzero(goes)
        rows = self._rows(batch.take(pa.array(chosen)), kinds[chosen], chosen, then)
        if bad.any() and not self._fresh:
            records = self._records(batch, np.flatnonzero(bad), then)
        return rows, records

    def count_uncopied(self, rows: pa.RecordBatch) -> None:
        parts = rows.column("parts").flatten()
        sizes = parts.field("size_bytes").filter(parts.field("mirror_etag").is_null())
        self.uncopied += Totals(len(sizes), pc.sum(sizes).as_py() or 0)

    def _packed_again(self, then: pa.RecordBatch) -> _Flags:
        """Whether unchanged samples are in shards that are packed again."""
        segments, rows = (then.column(name).to_numpy() for name in ("segment", "row"))
        again = np.zeros(len(segments), np.bool_)
        for place in np.unique(segments).tolist():
            members = segments == place
            flags = self._again[place]
            if flags is None:
                again[members] = True
            else:
                firsts = self._previous.segments[place].first_rows
                again[members] = flags[np.searchsorted(firsts, rows[members], side="right") - 1]
        return again

    def _rows(
        self,
        now: pa.RecordBatch,
        kinds: npt.NDArray[np.int8],
        places: npt.NDArray[np.intp],
        then: _PreviousRows,
    ) -> pa.RecordBatch:
        packed = np.isin(kinds, (Kind.UNCHANGED, Kind.RELABELLED, Kind.MOVED))
        if not self._alike.all():
            segments = then.rows(places[packed]).column("segment").to_numpy()
            packed[packed] = self._alike[segments]
        bad = kinds == Kind.BAD
        columns = {
            "packed": _scattered(packed, self._places(then.rows(places[packed])), _PACKED),
            "bad": _scattered(bad, then.rows(places[bad]).column("bad"), pa.string()),
        }
        for name, column in columns.items():
            now = now.set_column(
                SAMPLE_ORDER.get_field_index(name), SAMPLE_ORDER.field(name), column
            )
        read = now.filter(pa.array(~(packed | bad)))
        self.samples += now.num_rows
        sizes = read.column("parts").flatten().field("size_bytes")
        self.read += Totals(len(sizes), pc.sum(sizes).as_py() or 0)
        lengths = columns["packed"].drop_null().field("length")
        self.packed += Totals(len(lengths), pc.sum(lengths).as_py() or 0)
        self.count_uncopied(read)
        identity = [*now.columns[:3], identity_parts(now.column("parts"))]
        self.digest.update_batch(pa.RecordBatch.from_arrays(identity, SAMPLE_ORDER.names[:4]))
        return now

    def _places(self, then: pa.RecordBatch) -> pa.StructArray:
        """Where samples are in shards, as ``packed`` of SAMPLE_ORDER."""
        lists = then.column("parts")
        parts, offsets = lists.flatten(), lists.offsets.to_numpy()
        fields = list(_PACKED_PARTS.value_type)
        structs = pa.StructArray.from_arrays(
            [parts.field(field.name) for field in fields], fields=fields
        )
        columns: Mapping[str, pa.Array] = {
            "segment": self._ids.take(then.column("segment")),
            "split": then.column("old_split"),
            "shard": then.column("shard"),
            "offset": then.column("offset"),
            "length": then.column("length"),
            "parts": pa.ListArray.from_arrays(
                pa.array(offsets - offsets[0], pa.int32()), structs, type=_PACKED_PARTS
            ),
        }
        return pa.StructArray.from_arrays(
            [columns[field.name] for field in _PACKED], fields=list(_PACKED)
        )

    def _records(
        self, batch: pa.RecordBatch, places: npt.NDArray[np.intp], then: _PreviousRows
    ) -> pa.RecordBatch:
        """Records of bad samples, except those that segments of the version have themselves."""
        before = then.rows(places)
        segments = before.column("segment").to_numpy()
        unrecorded = np.array([place < 0 or not self._kept[place] for place in segments.tolist()])
        rows = batch.take(pa.array(places[unrecorded]))
        records = pa.RecordBatch.from_arrays(
            [
                rows.column("split"),
                rows.column("key"),
                identity_parts(rows.column("parts")),
                pa.repeat(pa.scalar(self._check), rows.num_rows),
                before.column("bad").filter(pa.array(unrecorded)),
            ],
            schema=SKIPPED,
        )
        self.skipped_digest.update_batch(records)
        return records


class _PreviousRows:
    """The rows of the previous version that belong to a batch of samples.

    However far apart they are, only these rows are kept in memory.
    """

    def __init__(self, comparison: Comparison, positions: npt.NDArray[np.int64]) -> None:
        self._file = comparison.previous
        self._positions = positions
        self._numbers = positions[positions >= 0]  # ascending: both are in the same order
        self._read: pa.RecordBatch | None = None

    def rows(self, places: npt.NDArray[np.intp]) -> pa.RecordBatch:
        """The rows of some samples of the batch, which have to be in the previous version."""
        if not len(places):
            return pa.RecordBatch.from_pylist([], schema=self._file.schema)
        if self._read is None:
            self._read = pa.concat_batches(list(self._pieces()))
        return self._read.take(pa.array(np.searchsorted(self._numbers, self._positions[places])))

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        """The rows of all samples of the batch."""
        start = int(self._numbers[0])
        for batch in self._file.read(start, int(self._numbers[-1]) + 1):
            stop = start + batch.num_rows
            low, high = np.searchsorted(self._numbers, [start, stop]).tolist()
            if low < high:
                yield batch.take(pa.array(self._numbers[low:high] - start))
            start = stop


def _scattered(flags: _Flags, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column with values where the flags are true, and nulls elsewhere."""
    if not flags.any():
        return pa.nulls(len(flags), kind)
    places = np.where(flags, np.cumsum(flags) - 1, 0)
    return values.take(pa.array(places, mask=~flags))
