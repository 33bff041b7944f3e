"""The plan of a copy, as a value. Planning writes only local files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.copy.copy_comparison import CopyComparison, CopyState, compared, read_state
from larder.copy.copy_matches import Outstanding
from larder.copy.copy_receipts import CopyReceipt
from larder.copy.copy_settings import CopySettings
from larder.copy.prices import Cost, estimate_cost
from larder.copy.route import Route
from larder.copy.site import Site, in_region, missing_region
from larder.errors import Failure, Failures
from larder.jobs.results import BatchReport, Totals
from larder.manifest.manifest_files import ManifestFile, ManifestWriter, read_manifest
from larder.manifest.query import Stream
from larder.manifest.schemas import DUE, FAILURES, OBJECTS
from larder.manifest.sort import SortedFile, sort_to_file
from larder.progress import Progress
from larder.samples.arrow_columns import column_texts
from larder.source.inventory import Listing
from larder.source.unfit import Storage, Unfit, archived_among, unfit_keys

_SHOWN_KEYS = 5


@dataclass(slots=True)
class CopySums:
    """Sums over the pieces of a comparison.

    ``copies`` are to be made; ``replaced`` of them replace another object. All ``verified`` copies
    stay; ``unrecorded`` of them are not in the record. ``same`` are copies of unchanged objects. No
    copy wrote the ``others`` at the storage. ``markers`` are left out of a directory.
    """

    copies: Totals = field(default_factory=Totals)
    verified: Totals = field(default_factory=Totals)
    same: Totals = field(default_factory=Totals)
    gone: Totals = field(default_factory=Totals)
    gone_keys: tuple[str, ...] = ()
    replaced: int = 0
    others: int = 0
    markers: int = 0
    unrecorded: int = 0

    def add(self, piece: Outstanding) -> None:
        self.copies += row_totals(piece.due)
        self.verified += row_totals(piece.wanted) + row_totals(piece.gone)
        self.same += row_totals(piece.same)
        self.gone += row_totals(piece.gone)
        room = _SHOWN_KEYS - len(self.gone_keys)
        self.gone_keys += tuple(column_texts(piece.gone.column("key").slice(0, room)))
        self.replaced += piece.replaced
        self.others += piece.others
        self.markers += piece.markers
        self.unrecorded += piece.unrecorded


class CopyPlan(NamedTuple):
    """Everything that a copy would do.

    ``listed`` are the selected objects at the source, and ``due`` the objects to copy (schema DUE).
    ``verified`` copies stay as they are. ``receipts`` are from runs that did not end.

    ``unfit`` are keys that the storage cannot hold, and ``archived`` objects that cannot be read
    until they are restored. ``unlisted`` are paths in the source that cannot be listed, each a
    failure of this copy; ``unlisted_file`` has all of them (schema FAILURES). If anything is to be
    done, ``settings`` have the regions that were found and not configured.
    """

    settings: CopySettings
    state: CopyState
    listed: Listing
    due: ManifestFile
    sums: CopySums
    verified: SortedFile
    receipts: Sequence[CopyReceipt]
    unfit: Unfit
    archived: Unfit
    unlisted: BatchReport
    unlisted_file: ManifestFile | None

    @property
    def route(self) -> Route:
        settings, state, copies = self.settings, self.state, self.sums.copies
        return Route(
            settings.source, settings.storage, state.root.url, state.place, settings.limits, copies
        )

    @property
    def cost(self) -> Cost:
        source, target = Site.of(self.settings.source), Site.of(self.settings.storage)
        copies = self.sums.copies
        return estimate_cost(
            source, target, size_bytes=copies.bytes, objects=copies.count, written=copies.count
        )

    @property
    def current(self) -> bool:
        """Whether there is no object to copy, nothing to record, and no receipt to delete."""
        record = self.state.record
        settled = record is not None and record.failures is None
        undone = self.sums.copies.count or self.sums.unrecorded or self.unlisted.failed
        return settled and not undone and not self.receipts


def row_totals(rows: pa.RecordBatch) -> Totals:
    return Totals(rows.num_rows, pc.sum(rows.column("size_bytes"), min_count=0).as_py())


def plan_copy(settings: CopySettings, folder: Path, *, progress: Progress) -> CopyPlan:
    """List the source and the storage, and plan the copies.

    Writes only into the private ``folder``, which the plan needs until the copy is done.
    """
    failures = Failures()
    with ManifestWriter(folder / "unlisted.parquet", FAILURES) as writer:

        def note(failure: Failure) -> None:
            writer.append([failure])
            failures.add(failure)

        state = read_state(settings, note)
        with compared(settings, state, folder, progress) as comparison:
            sums, due, verified = summed(
                comparison, folder, DUE, lambda piece: (piece.due.select(DUE.names), piece.verified)
            )
    listed, archived = comparison.objects, Unfit()
    if listed.archived:
        keys = read_manifest(due.path, DUE, columns=("key",))
        archived = archived_among(keys, listed.archived, folder)
    plan = CopyPlan(
        settings=settings,
        state=state,
        listed=listed,
        due=due,
        sums=sums,
        verified=verified,
        receipts=comparison.receipts,
        unfit=_unfit(state, due, folder, listed.rows, comparison.stored.read()),
        archived=archived,
        unlisted=BatchReport.of(failures),
        unlisted_file=writer.file if failures.count else None,
    )
    return plan if plan.current else plan._replace(settings=_located(settings, state))


def _located(settings: CopySettings, state: CopyState) -> CopySettings:
    """Return the settings with the regions that were found."""
    source, storage = settings.source, settings.storage
    return settings._replace(
        source=in_region(source, missing_region(source, state.source)),
        storage=in_region(storage, missing_region(storage, state.root)),
    )


def summed(
    comparison: CopyComparison,
    folder: Path,
    schema: pa.Schema,
    pick: Callable[[Outstanding], tuple[pa.RecordBatch, pa.RecordBatch]],
) -> tuple[CopySums, ManifestFile, SortedFile]:
    """Return the sums of a comparison, and two files of rows that ``pick`` takes from each piece.

    The first rows have a schema of their own; the second rows are verified copies.
    """
    sums = CopySums()

    def verified(picked: ManifestWriter) -> Iterator[pa.RecordBatch]:
        for piece in comparison.pieces:
            sums.add(piece)
            rows, copies = pick(piece)
            picked.append_batch(rows)
            yield copies

    with ManifestWriter(folder / "picked.parquet", schema) as picked:
        copies = Stream(OBJECTS, verified(picked))
        kept = sort_to_file(copies, ("key",), folder / "verified.arrow")
    return sums, picked.file, kept


def _unfit(
    state: CopyState,
    due: ManifestFile,
    folder: Path,
    everything: SortedFile | None,
    stored: Iterable[pa.RecordBatch],
) -> Unfit:
    """Find keys that the storage cannot hold, if anything is copied.

    In a directory, no key is both a file and a folder. So the whole source is compared, unless the
    source is a directory, too. If the file system takes different names for one, the whole source
    and the stored keys are compared.
    """
    if not due.rows:
        return Unfit()
    storage = Storage.of(state.root)
    several = any(storage.folding) or not state.source.features.local_path
    whole = everything if storage.path and several else None
    columns = ("key", "size_bytes")
    return unfit_keys(
        lambda: whole.read() if whole else read_manifest(due.path, DUE, columns=columns),
        storage,
        "",
        every_key=True,
        work_dir=folder,
        stored=stored,
    )
