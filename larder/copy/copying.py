"""The composition of a copy: its steps in order, for every runner, and its JSON document.

::

    plan_copy -> nothing to do
              -> copy_objects, in batches -> end_copy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from larder.copy.copy_end import EarlierCopies, end_copy
from larder.copy.copy_job import begin, make_copies
from larder.copy.copy_plan import CopyPlan, plan_copy
from larder.copy.copy_record import CopyDocument
from larder.copy.copy_settings import CopySettings
from larder.copy.prices import check_cost, cost_document, cost_lines
from larder.copy.route import SentAhead
from larder.disk import check_room, scratch
from larder.errors import Failure, printable
from larder.jobs.results import BatchReport, RefusedError, RunError, Totals, merge_reports
from larder.jobs.step_runner import Runner, Start
from larder.progress import Progress, TimedProgress
from larder.store import local_path, object_url
from larder.units import (
    format_amount,
    format_count,
    format_names,
    format_seconds,
    row_lines,
    warning_lines,
)

_SHOWN_KEYS = 3


def copy(
    settings: CopySettings, runner: Runner, *, plan_only: bool = False, start: Start | None = None
) -> dict[str, Any]:
    """Copy missing and changed objects to a storage; return the JSON document of the copy or plan.

    With ``plan_only``, only private temporary files are written. RunError: some objects could not
    be copied, or some paths could not be listed. The others were copied; copies and failures are
    recorded. After any other failure, the next copy continues.
    """
    with scratch() as folder:
        plan = runner.run(checked_copy, settings, folder)
        if plan.current:
            return _ended(plan, "current", Totals(), plan.state.record, runner.times)
        if plan_only:
            return copy_plan_document(plan)
        execute = partial(_execute, plan)
        return start(execute) if start else execute(runner)


def checked_copy(settings: CopySettings, folder: Path, *, progress: Progress) -> CopyPlan:
    """Plan a copy, and refuse a plan that must not be executed.

    Refused if the storage cannot hold some keys (``config.bad_key``) or bytes (``store.full``), if
    it costs too much (``config.cost_limit``), or if the chosen engine cannot make the copy.
    """
    plan = plan_copy(settings, folder, progress=progress)
    if plan.unfit.count:
        failures, count = plan.unfit.failures, plan.unfit.count
        message = f"{format_count(count, 'key')} that the storage cannot hold"
        hint = "rename or exclude them"
        report = BatchReport(failures=failures, failed=count)
        raise RefusedError("config.bad_key", f"{message}: {failures[0].message}", hint, report)
    check_cost(plan.cost, settings.limits.max_cost_usd, "copy")
    plan.route.check()
    root = plan.state.root
    if root.features.local_path and not plan.sums.replaced:  # replaced objects make room
        check_room(local_path(root, "x").parent, plan.sums.copies.bytes)
    return plan


def _execute(plan: CopyPlan, runner: Runner) -> dict[str, Any]:
    """Execute a plan, whose temporary files must still exist."""
    job, report, ahead = None, BatchReport(), SentAhead()
    if plan.sums.copies.count:
        job = begin(plan.route, plan.settings.runner, plan.due)
        report, ahead = make_copies(job, runner)
    earlier = EarlierCopies(plan.verified, plan.state.record, plan.receipts, plan.unlisted_file)
    runner.progress.start("publish")
    record: CopyDocument = runner.run(end_copy, plan.route, job, report, earlier)
    runner.progress.finish("publish")
    failed = merge_reports((report, plan.unlisted))
    if failed.failed:
        stage = "mirror" if report.failed else "inventory"
        raise RunError(stage, failed, failed_hint(plan, record))
    document = _ended(plan, "copied", report.done, record, runner.times)
    if ahead.message:
        document["warnings"].append({"code": "skyplane", "message": ahead.message})
    return document


def copy_plan_document(plan: CopyPlan) -> dict[str, Any]:
    return {
        **_document(plan, "planned", plan.sums.copies),
        "excluded": {
            "listed": plan.listed.listed,
            "not_included": asdict(plan.listed.not_included),
            "excluded": asdict(plan.listed.excluded),
            "ignored": plan.sums.markers,
        },
        "failed": plan.unlisted.failed,
        "failures": [failure._asdict() for failure in plan.unlisted.failures],
        "cost": cost_document(plan.cost),
        "engine": plan.route.choice._asdict(),
        "not_kept": _not_kept(plan),
    }


def _ended(
    plan: CopyPlan, status: str, copied: Totals, record: CopyDocument | None, times: TimedProgress
) -> dict[str, Any]:
    """Return the document of a copy that was executed, or had nothing to do."""
    assert record is not None, "a copy that ends has a record"
    return {
        **_document(plan, status, copied),
        "checks": dict(record.checks),
        "manifest": object_url(plan.state.root.url, record.manifest.path),
        "digest": record.digest,
        "seconds": round(times.seconds(), 3),
        "stages": times.stages(),
    }


def _document(plan: CopyPlan, status: str, copied: Totals) -> dict[str, Any]:
    sums = plan.sums
    return {
        "source": plan.state.place.origin.url,
        "storage": plan.state.root.url,
        "status": status,
        "verify": plan.settings.limits.verify,
        "objects": asdict(Totals(plan.listed.objects, plan.listed.bytes)),
        "copied": asdict(copied),
        "replaced": sums.replaced,
        "same": asdict(sums.same),
        "gone": {**asdict(sums.gone), "keys": list(sums.gone_keys)},
        "others": sums.others,
        "warnings": _warnings(plan),
    }


def _not_kept(plan: CopyPlan) -> str:
    """Name the properties of objects that their copies will lack."""
    source, target = plan.state.source.features.place, plan.state.root.features.place
    if source is None:
        return ""
    if target is None:
        return "types, metadata, headers and tags: a directory has none"
    if (source.provider, source.server) == (target.provider, target.server):
        return ""
    return "Expires; and tags, which would take a request for each object"


def _warnings(plan: CopyPlan) -> list[dict[str, str]]:
    warnings = []
    if plan.state.displaced:
        message = f"the storage has a copy of {printable(plan.state.displaced)}: its objects stay,"
        message += " but the record of what was copied from there is replaced"
        warnings.append({"code": "other_source", "message": message})
    if plan.archived.count:
        keys = [printable(failure.key) for failure in plan.archived.failures]
        names = format_names(keys, _SHOWN_KEYS, total=plan.archived.count)
        message = f"archived, and cannot be read unless they were restored: {names}"
        warnings.append({"code": "archived", "message": message})
    return warnings


def failed_hint(plan: CopyPlan, record: CopyDocument) -> str:
    """Say what to do about objects that could not be copied and paths that cannot be listed."""
    hint = "the others were copied; run again to try these"
    if plan.unlisted.failed:
        hint = "the others were copied; fix or exclude these, then run again"
    if record.failures:
        hint += f"; they are listed in {object_url(plan.state.root.url, record.failures.path)}"
    return hint


def copy_lines(document: Mapping[str, Any]) -> list[str]:
    """Format a copy, or its plan, as lines for people."""
    others, engine = format_count(document["others"], "object"), document.get("engine")
    checks = (f"{count:,} by {check}" for check, count in document.get("checks", {}).items())
    rows = {
        "source": [f"{format_amount(document['objects'])} at {document['source']}"],
        "same": [format_amount(document["same"])],
        "copied": [_copied(document)],
        "failed": [_failed_line(document)],
        "gone": [_gone_line(document)],
        "not kept": [document.get("not_kept", "")],
        "others": [f"{others} at the storage from elsewhere" if document["others"] else ""],
        "checks": [", ".join(checks)],
        "engine": [f"{engine['engine']}: {engine['reason']}"] if engine else [],
        "cost": cost_lines(document["cost"]) if "cost" in document else [],
    }
    lines = [_first(document)]
    for name, texts in rows.items():
        lines += row_lines(name, list(filter(None, texts)))
    return [*lines, *warning_lines(document)]


def _first(document: Mapping[str, Any]) -> str:
    status, storage = document["status"], document["storage"]
    if status == "planned":
        return f"plan for {storage}"
    took = format_seconds(document["seconds"])
    if status == "current":
        return f"{storage} is current: nothing to copy, after {took}"
    return f"{storage} copied in {took}"


def _copied(document: Mapping[str, Any]) -> str:
    status, replaced = document["status"], document["replaced"]
    if status == "current":
        return ""
    amount = format_amount(document["copied"]) + (" to copy" if status == "planned" else "")
    if not replaced:
        return amount
    return f"{amount}; {format_count(replaced, 'object')} differed at the storage"


def _gone_line(document: Mapping[str, Any]) -> str:
    gone = document["gone"]
    if not gone["count"]:
        return ""
    objects = format_count(gone["count"], "object")
    are = "is" if gone["count"] == 1 else "are"
    return f"{objects} at the storage {are} no longer in the source; larder prune removes them"


def _failed_line(document: Mapping[str, Any]) -> str:
    if not document.get("failed"):
        return ""
    first = Failure(**document["failures"][0]).line
    return f"{format_count(document['failed'], 'path')} that cannot be listed, the first: {first}"
