"""The plan of a copy, as a value. Planning writes only local files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.copy.copy_comparison import CopyComparison, CopyState, compared, read_state
from larder.copy.copy_end import EarlierCopies
from larder.copy.copy_matches import Outstanding
from larder.copy.copy_receipts import CopyReceipt
from larder.copy.copy_record import CopyDocument
from larder.copy.copy_settings import CopySettings
from larder.copy.prices import Cost, estimate_cost
from larder.copy.route import Route
from larder.copy.site import Site, missing_region
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

    ``copies`` are to be made; ``replaced`` of them replace another object. ``verified`` are all
    copies that stay as they are; ``unrecorded`` of them are not in the record. ``same`` are copies
    of unchanged objects. ``others`` are objects at the storage that no copy wrote, and ``markers``
    folder markers, which a directory cannot have.
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
        self.verified += row_totals(piece.verified)
        self.same += row_totals(piece.same)
        self.gone += row_totals(piece.gone)
        room = _SHOWN_KEYS - len(self.gone_keys)
        self.gone_keys += tuple(column_texts(piece.gone.column("key").slice(0, room)))
        self.replaced += piece.replaced
        self.others += piece.others
        self.markers += piece.markers
        self.unrecorded += piece.unrecorded


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Everything that a copy would do.

    ``listed`` are the selected objects at the source, and ``due`` the objects to copy (schema DUE).
    ``verified`` are the verified copies that stay as they are. ``receipts`` are from runs that did
    not end; the record includes them once this copy ends.

    ``unfit`` are keys that the storage cannot hold, and ``archived`` objects that cannot be read
    until they are restored. ``unlisted`` are paths in the source that cannot be listed, each a
    failure of this copy; ``unlisted_file`` has all of them (schema FAILURES). ``regions`` are of
    the source and of the storage, where they were found and not configured.
    """

    settings: CopySettings
    state: CopyState
    listed: Listing
    due: ManifestFile
    sums: CopySums
    verified: SortedFile
    receipts: Sequence[CopyReceipt]
    unfit: Unfit
    unlisted: BatchReport = field(default_factory=BatchReport)
    unlisted_file: ManifestFile | None = None
    regions: tuple[str | None, str | None] = (None, None)
    archived: Unfit = field(default_factory=Unfit)

    @property
    def objects(self) -> Totals:
        return Totals(self.listed.objects, self.listed.bytes)

    @property
    def copies(self) -> Totals:
        return self.sums.copies

    @property
    def record(self) -> CopyDocument | None:
        return self.state.record

    @property
    def located(self) -> CopySettings:
        return self.settings.in_regions(*self.regions)

    @property
    def route(self) -> Route:
        settings, state = self.located, self.state
        return Route(
            settings.source,
            settings.storage,
            state.root.url,
            state.place,
            settings.limits,
            self.copies,
        )

    @property
    def earlier(self) -> EarlierCopies:
        return EarlierCopies(self.verified, self.record, self.receipts, self.unlisted_file)

    @property
    def cost(self) -> Cost:
        settings, copies = self.located, self.copies
        return estimate_cost(
            Site.of(settings.source),
            Site.of(settings.storage),
            size_bytes=copies.bytes,
            objects=copies.count,
            written=copies.count,
        )

    @property
    def current(self) -> bool:
        """Whether neither a copy nor the record needs a write."""
        settled = self.record is not None and self.record.failures is None
        undone = self.copies.count or self.sums.unrecorded or self.unlisted.failed
        return settled and not undone


def row_totals(rows: pa.RecordBatch) -> Totals:
    return Totals(rows.num_rows, pc.sum(rows.column("size_bytes"), min_count=0).as_py())


def plan_copy(settings: CopySettings, folder: Path, *, progress: Progress) -> CopyPlan:
    """List the source and the storage, and plan the copies.

    Writes only into the private ``folder``, which the plan needs until the copy is done. An empty
    source is refused.
    """
    failures = Failures()
    with ManifestWriter(folder / "unlisted.parquet", FAILURES) as writer:

        def note(failure: Failure) -> None:
            writer.append([failure])
            failures.add(failure)

        state = read_state(settings, note)
        plan = _planned(settings, state, folder, progress)
    file = writer.file if failures.count else None
    plan = replace(plan, unlisted=BatchReport.of(failures), unlisted_file=file)
    return plan if plan.current else replace(plan, regions=_regions(settings, state))


def _regions(settings: CopySettings, state: CopyState) -> tuple[str | None, str | None]:
    source = missing_region(settings.source, state.source)
    return source, missing_region(settings.storage, state.root)


def _planned(
    settings: CopySettings, state: CopyState, folder: Path, progress: Progress
) -> CopyPlan:
    with compared(settings, state, folder, progress) as comparison:
        sums, due, kept = summed(comparison, folder, lambda piece: piece.due.select(DUE.names), DUE)
    listed = comparison.objects
    return CopyPlan(
        settings=settings,
        state=state,
        listed=listed,
        due=due,
        sums=sums,
        verified=kept,
        receipts=comparison.receipts,
        unfit=_unfit(state, due, folder, listed.rows, comparison.stored.read()),
        archived=_archived(due, listed, folder),
    )


def _archived(due: ManifestFile, listed: Listing, folder: Path) -> Unfit:
    keys = read_manifest(due.path, DUE, columns=("key",))
    return archived_among(keys, listed.archived, folder) if listed.archived else Unfit()


def summed(
    comparison: CopyComparison,
    folder: Path,
    pick: Callable[[Outstanding], pa.RecordBatch],
    schema: pa.Schema = OBJECTS,
) -> tuple[CopySums, ManifestFile, SortedFile]:
    """Return the sums of a comparison, a manifest of the picked rows, and the copies that stay."""
    sums = CopySums()

    def verified(picked: ManifestWriter) -> Iterator[pa.RecordBatch]:
        for piece in comparison.pieces:
            sums.add(piece)
            picked.append_batch(pick(piece))
            yield piece.verified

    with ManifestWriter(folder / "picked.parquet", schema) as picked:
        rows = Stream(OBJECTS, verified(picked))
        kept = sort_to_file(rows, ("key",), folder / "verified.arrow")
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
