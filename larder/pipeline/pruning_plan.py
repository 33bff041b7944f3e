"""The plan of a prune: which copies are of objects that are not in the source any more.

A copy is deleted only if the record, or a receipt, says that a copy wrote it, and if it is still
like that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from larder.errors import ConfigError, printable
from larder.manifest.query import Rows
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import SortedFile, sort_to_file
from larder.manifest.writer import ManifestFile, ManifestWriter
from larder.pipeline.copying_compare import Known, compared, known_copies, not_listed
from larder.pipeline.copying_plan import row_totals
from larder.pipeline.copying_settings import CopySettings
from larder.pipeline.job import ManifestRef
from larder.pipeline.results import Totals
from larder.progress import Progress
from larder.store import object_url
from larder.units import format_count

MAX_DELETE = 1_000
"""Maximum number of objects that are deleted, unless the user gives a number."""

MAX_PERCENT = 10
"""The same as a percentage of the copies at the storage."""


@dataclass(frozen=True, slots=True)
class PruneSettings:
    """Everything that a prune is told; without ``max_delete``, the default limits apply."""

    places: CopySettings
    max_delete: int | None = None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a prune would delete.

    ``copies`` are the verified copies at the storage, which are in ``standing``; ``gone`` are those
    to delete (schema OBJECTS, ordered by key), ``total`` in all. ``others`` is the number of
    objects at the storage that no copy from the source wrote; ``receipts`` are what runs of copies
    left that did not end.
    """

    settings: PruneSettings
    known: Known
    copies: Totals
    gone: ManifestFile
    total: Totals
    others: int
    standing: SortedFile
    receipts: tuple[ManifestRef, ...]


def plan_prune(settings: PruneSettings, folder: Path, *, progress: Progress) -> PrunePlan:
    """List the source and the storage, and plan what to delete.

    Writes only into ``folder``, which is private, and which the plan needs until the prune is done.
    It is refused if the storage has no record of a copy from this source, or more would be deleted
    than is allowed (``config.prune``), if the source is empty (``config.empty_source``), or has
    paths that cannot be listed (``run.failed``). A partial listing is never used.
    """
    if settings.places.source.inventory is not None:
        message = "a report may be older than what it says nothing of: the source has to be listed"
        hint = "leave source.inventory out"
        raise ConfigError("config.prune", message, where="source.inventory", hint=hint)
    known = known_copies(settings.places)
    _check_record(known)
    copies, total, others = Totals(), Totals(), 0
    with compared(settings.places, known, folder, progress) as found:
        if known.unlisted.failures.count:
            raise not_listed(known)

        def standing(gone: ManifestWriter) -> Iterator[pa.RecordBatch]:
            nonlocal copies, total, others
            for piece in found.pieces:
                copies += row_totals(piece.standing)
                total += row_totals(piece.gone)
                others += piece.others
                gone.append_batch(piece.gone)
                yield piece.standing

        with ManifestWriter(folder / "gone.parquet", OBJECTS) as gone:
            rows = Rows(OBJECTS, standing(gone))
            kept = sort_to_file(rows, ("key",), folder / "standing.arrow")
    plan = PrunePlan(settings, known, copies, gone.file, total, others, kept, found.receipts)
    _check_limit(plan)
    return plan


def _check_record(known: Known) -> None:
    where = known.root.url
    if known.displaced:
        message = f"the storage has a copy of another source, {printable(known.displaced)}"
        hint = "name that source, or copy this one first"
        raise ConfigError("config.prune", message, where=where, hint=hint)
    if known.record is None:
        message = f"the storage has no record of a copy from {printable(known.origin.url)}"
        hint = "only what larder copy wrote is pruned: run larder copy first"
        raise ConfigError("config.prune", message, where=where, hint=hint)


def _check_limit(plan: PrunePlan) -> None:
    asked, count = plan.settings.max_delete, plan.total.count
    percent = plan.copies.count * MAX_PERCENT // 100
    limit = min(MAX_DELETE, percent) if asked is None else asked
    if count <= limit:
        return
    why = f"--max-delete is {limit:,}"
    if asked is None:
        why = f"more than {MAX_DELETE:,}, the default of --max-delete"
        if percent < MAX_DELETE:
            why = f"more than {MAX_PERCENT} percent of the {plan.copies.count:,} copies"
    message = f"{format_count(count, 'object')} would be deleted: {why}"
    hint = f"check the source; if it is right, pass --max-delete {count}"
    where = object_url(plan.known.root.url, "")
    raise ConfigError("config.prune", message, where=where, hint=hint)
