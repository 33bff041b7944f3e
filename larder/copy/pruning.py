"""The composition of a prune: plan, delete, write the record.

The list of objects to delete is written first, to ``_larder/copy/pruned-SHA.parquet``, and stays.
The record follows the deletions: it may name deleted copies, but never lacks a copy that exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from larder.budgets import map_ahead
from larder.copy.copy_comparison import CopyState, compared, not_listed, read_state
from larder.copy.copy_plan import CopySums, summed
from larder.copy.copy_receipts import CopyReceipt
from larder.copy.copy_record import read_record, write_record
from larder.copy.copy_settings import CopySettings
from larder.disk import scratch
from larder.errors import (
    ConfigError,
    Failure,
    Failures,
    NotFoundError,
    ObjectError,
    PreconditionError,
    printable,
)
from larder.jobs.manifests import put_named
from larder.jobs.results import BatchReport, RunError, Totals
from larder.jobs.step_runner import Runner, Start
from larder.manifest.manifest_files import ManifestFile, read_manifest
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import SortedFile
from larder.progress import Progress, TimedProgress
from larder.samples.arrow_columns import column_texts
from larder.store import object_url
from larder.store.etags import are_equal
from larder.store.own_files import not_kept
from larder.units import format_bytes, format_count, format_seconds

SHOWN_KEYS = 1_000
"""Maximum number of keys in a document."""

SHOWN_LINES = 10

MAX_DELETE = 1_000
"""Maximum number of objects that are deleted, unless the user gives a number."""

MAX_PERCENT = 10
"""Default limit of deletions, as a percentage of the copies at the storage."""


@dataclass(frozen=True, slots=True)
class PruneSettings:
    """All settings of a prune; without ``max_delete``, the default limits apply."""

    places: CopySettings
    max_delete: int | None = None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Copies that a prune would delete.

    ``gone`` are the copies to delete, and ``wanted`` the other verified copies (schema OBJECTS,
    ordered by key). ``receipts`` are from runs of copies that did not end.
    """

    settings: PruneSettings
    state: CopyState
    gone: ManifestFile
    sums: CopySums
    wanted: SortedFile
    receipts: Sequence[CopyReceipt]


def plan_prune(settings: PruneSettings, folder: Path, *, progress: Progress) -> PrunePlan:
    """List the source and the storage, and plan which copies to delete.

    Writes only into the private ``folder``, which the plan needs until the prune is done.

    Refused: ``config.prune``: the source has an inventory report, the storage has no record of a
    copy from this source, or too many copies would be deleted; ``config.empty_source``;
    ``run.failed``: paths in the source cannot be listed.
    """
    if settings.places.source.inventory is not None:
        message = "a report may be older than what it says nothing of: the source has to be listed"
        hint = "leave source.inventory out"
        raise ConfigError("config.prune", message, where="source.inventory", hint=hint)
    state = read_state(settings.places)
    _check_record(state)
    with compared(settings.places, state, folder, progress) as comparison:
        if state.unlisted.failures.count:
            raise not_listed(state)
        sums, gone, wanted = summed(
            comparison, folder, OBJECTS, lambda piece: (piece.gone, piece.wanted)
        )
    plan = PrunePlan(settings, state, gone, sums, wanted, comparison.receipts)
    _check_limit(plan)
    return plan


def _check_record(state: CopyState) -> None:
    where = state.root.url
    if state.displaced:
        message = f"the storage has a copy of another source, {printable(state.displaced)}"
        hint = "name that source, or copy this one first"
        raise ConfigError("config.prune", message, where=where, hint=hint)
    if state.record is None:
        message = f"the storage has no record of a copy from {printable(state.place.origin.url)}"
        hint = "only what larder copy wrote is pruned: run larder copy first"
        raise ConfigError("config.prune", message, where=where, hint=hint)


def _check_limit(plan: PrunePlan) -> None:
    max_delete, count = plan.settings.max_delete, plan.sums.gone.count
    percent = plan.sums.verified.count * MAX_PERCENT // 100
    limit = min(MAX_DELETE, percent) if max_delete is None else max_delete
    if count <= limit:
        return
    why = f"--max-delete is {limit:,}"
    if max_delete is None:
        why = f"more than {MAX_DELETE:,}, the default of --max-delete"
        if percent < MAX_DELETE:
            why = f"more than {MAX_PERCENT} percent of the {plan.sums.verified.count:,} copies"
    message = f"{format_count(count, 'object')} would be deleted: {why}"
    hint = f"check the source; if it is right, pass --max-delete {count}"
    where = object_url(plan.state.root.url, "")
    raise ConfigError("config.prune", message, where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of a prune; ``kept`` objects changed after they were listed.

    ``list`` is the key of the list of all objects that were to be deleted.
    """

    report: BatchReport
    kept: int
    list: str


def prune(
    settings: PruneSettings, runner: Runner, *, plan_only: bool = False, start: Start | None = None
) -> dict[str, Any]:
    """Delete copies of objects that are no longer in the source.

    With ``plan_only``, only private temporary files are written. Returns the JSON document of the
    prune, or of its plan. RunError: some objects could not be deleted.
    """
    with scratch() as folder:
        plan = runner.run(plan_prune, settings, folder)
        if not plan.sums.gone.count:
            return _ended(plan, None, runner.times)
        if plan_only:
            return _document(plan, "planned")
        execute = partial(_execute, plan)
        return start(execute) if start else execute(runner)


def _execute(plan: PrunePlan, runner: Runner) -> dict[str, Any]:
    """Execute a plan, whose temporary files must still exist."""
    pruned: Pruned = runner.run(prune_objects, plan)
    if pruned.report.failed:
        hint = "the others were deleted; run again to try these again"
        raise RunError("prune", pruned.report, hint)
    return _ended(plan, pruned, runner.times)


def prune_objects(plan: PrunePlan, *, progress: Progress) -> Pruned:
    """Delete the planned objects, each only if it is still as it was listed."""
    root = plan.state.root
    progress.start("prune", objects=plan.sums.gone.count, bytes=plan.sums.gone.bytes)
    key = plan.state.place.file("pruned", plan.gone.sha256)
    written = put_named(root, key, plan.gone, "pruned")
    if (kept_bytes := root.head(key).size_bytes) != written.bytes:
        raise not_kept(object_url(root.url, key), written.bytes, kept_bytes)
    done, kept, failures, certain = Totals(), 0, Failures(), True

    def delete(row: tuple[str, int, str]) -> Failure | bool | None:
        key, size_bytes, etag = row
        try:
            info = root.head(key)  # many servers ignore the condition of the deletion
            if info.size_bytes != size_bytes or not are_equal(info.etag, etag):
                return False
            root.delete(key, if_match=etag)
        except NotFoundError:
            return None
        except PreconditionError:
            return False
        except ObjectError as error:
            return Failure.of(key, error)
        return True

    count = plan.settings.places.limits.concurrency
    with ThreadPoolExecutor(count, thread_name_prefix="prune") as pool:
        results = map_ahead(pool, lambda row: (row[1], delete(row)), _rows(plan), window=4 * count)
        for size_bytes, result in results:
            progress.advance("prune", objects=1, bytes=size_bytes)
            if isinstance(result, Failure):
                failures.add(result)
            elif result is False:
                kept += 1
            else:
                done += Totals(1, size_bytes)
            certain &= result is True
    _write_record(plan, certain)
    progress.finish("prune")
    return Pruned(BatchReport.of(failures, done), kept, written.path)


def _rows(plan: PrunePlan) -> Iterator[tuple[str, int, str]]:
    for rows in read_manifest(plan.gone.path, OBJECTS):
        sizes = rows.column("size_bytes").to_pylist()
        keys, etags = (column_texts(rows.column(name)) for name in ("key", "mirror_etag"))
        yield from zip(keys, sizes, etags, strict=True)


def _write_record(plan: PrunePlan, certain: bool) -> None:
    """Record the copies that are left, unless an answer was unexpected.

    After such an answer the store may have lied, so the listing of the next copy or prune decides.
    """
    root, place = plan.state.root, plan.state.place
    record = read_record(root, place)
    if not certain or record != plan.state.record or record is None:
        return  # or another run has ended in the meantime, whose record stays
    replaced = [*(receipt.manifest for receipt in plan.receipts), *record.files]
    with scratch() as folder:
        write_record(
            root, place, plan.wanted.read(), folder, failures=record.failures, replaced=replaced
        )


def _ended(plan: PrunePlan, pruned: Pruned | None, times: TimedProgress) -> dict[str, Any]:
    return {
        **_document(plan, "pruned" if pruned else "current"),
        "deleted": asdict(pruned.report.done if pruned else Totals()),
        "kept": pruned.kept if pruned else 0,
        "list": object_url(plan.state.root.url, pruned.list) if pruned else None,
        "seconds": round(times.seconds(), 3),
        "stages": times.stages(),
    }


def _document(plan: PrunePlan, status: str) -> dict[str, Any]:
    keys = [key for key, _, _ in islice(_rows(plan), SHOWN_KEYS)]
    return {
        "source": plan.state.place.origin.url,
        "storage": plan.state.root.url,
        "status": status,
        "copies": asdict(plan.sums.verified),
        "others": plan.sums.others,
        "gone": {**asdict(plan.sums.gone), "keys": keys},
    }


def prune_lines(document: Mapping[str, Any]) -> list[str]:
    """Format a prune, or its plan, as lines for people."""
    storage, gone = document["storage"], document["gone"]
    amount = f"{format_count(gone['count'], 'object')}, {format_bytes(gone['bytes'])}"
    if document["status"] == "current":
        copies = format_count(document["copies"]["count"], "object")
        others = format_count(document["others"], "object")
        line = f"{storage}: nothing to prune, all that was copied from {document['source']} is"
        line += f" still in it ({copies})"
        return [f"{line}; {others} from elsewhere left alone" if document["others"] else line]
    if document["status"] == "planned":
        lines = [f"plan for {storage}", f"  delete   {amount}"]
    else:
        took = format_seconds(document["seconds"])
        lines = [f"{storage} pruned in {took}", f"  deleted  {_deleted(document)}"]
    keys = gone["keys"][:SHOWN_LINES]
    lines += [f"           {key}" for key in keys]
    more = gone["count"] - len(keys)
    lines += [f"           and {more:,} more (--json lists {SHOWN_KEYS:,})"] if more else []
    return lines + ([f"  list     {document['list']}"] if document.get("list") else [])


def _deleted(document: Mapping[str, Any]) -> str:
    deleted, kept = document["deleted"], document["kept"]
    amount = f"{format_count(deleted['count'], 'object')}, {format_bytes(deleted['bytes'])}"
    left = f"; {format_count(kept, 'object')} changed in the meantime and stayed" if kept else ""
    return f"{amount}{left}"
