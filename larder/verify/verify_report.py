"""The JSON document of a verification, and its lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from larder.errors import printable
from larder.jobs.results import Totals
from larder.progress import TimedProgress
from larder.segments.stores import root_url
from larder.units import format_bytes, format_count, format_seconds
from larder.verify.findings import Finding
from larder.verify.replacing import Repair
from larder.verify.verify_job import Inspected, VerifyJob

SHOWN_FINDINGS = 1_000
"""Maximum number of findings in a document; the others are counted."""

_SHOWN_LINES = 20


def verify_document(
    job: VerifyJob,
    inspected: Inspected,
    findings: Sequence[Finding],
    left: Sequence[Finding],
    repairs: Mapping[str, Repair],
    read: Totals,
    times: TimedProgress,
) -> dict[str, Any]:
    """Return the JSON document; ``left`` are the remaining findings, ``repairs`` are by path."""
    version = inspected.version
    status = "damaged"
    if not left:
        status = "repaired" if repairs else "intact"
    return {
        "dataset": job.dataset.name,
        "storage": root_url(job.dataset, job.cluster),
        "version": inspected.id or None,
        "digest": version.digest if version else None,
        "status": status,
        "samples": sum(split.samples for split in version.splits.values()) if version else None,
        "read": {
            **asdict(read),
            "of": {"count": inspected.files, "bytes": inspected.bytes},
            "sample_percent": job.sample_percent,
            "seed": job.seed if job.sample_percent is not None else None,
        },
        "unused": {**inspected.unused._asdict(), "keys": list(inspected.unused.keys)},
        "found": len(findings),
        "findings": [
            _finding(finding, repairs.get(finding.path)) for finding in findings[:SHOWN_FINDINGS]
        ],
        "repaired": sum(repair.done for repair in repairs.values()),
        "seconds": round(times.seconds(), 3),
        "stages": times.stages(),
    }


def _finding(finding: Finding, repair: Repair | None) -> dict[str, Any]:
    return {
        "path": finding.path,
        "role": finding.role,
        "code": finding.code,
        "message": finding.message,
        "samples": {"count": finding.count, "keys": list(finding.samples)},
        "line": finding.line,
        "repair": {"done": repair.done, "message": repair.message} if repair else None,
    }


def finding_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "path": printable(row["path"]),
            "what": row["role"],
            "code": row["code"],
            "message": printable(row["message"]),
            "samples": row["samples"]["count"],
            "first samples": ", ".join(map(printable, row["samples"]["keys"][:3])),
            "repair": printable(row["repair"]["message"]) if row["repair"] else "",
        }
        for row in document["findings"]
    ]


def verify_lines(document: Mapping[str, Any]) -> list[str]:
    name = f"{document['dataset']}, version {document['version'] or 'unknown'}"
    read, whole = document["read"], document["read"]["of"]
    lines = [
        f"{name}: {document['status']}, verified in {format_seconds(document['seconds'])}",
        f"  read     {format_count(read['count'], 'file')} of shards and caches,"
        f" {format_bytes(read['bytes'])}{_share(read, whole)}",
    ]
    lines += _unused_lines(document["unused"])
    rows = document["findings"]
    lines += [f"  found    {row['line']}" for row in rows[:_SHOWN_LINES]]
    lines += _more(document["found"] - len(rows[:_SHOWN_LINES]))
    repairs = [row for row in rows if row["repair"]]
    lines += [_repair_line(row) for row in repairs[:_SHOWN_LINES]]
    lines += _more(len(repairs) - len(repairs[:_SHOWN_LINES]))
    return [*lines, f"  at       {document['storage']}"]


def _unused_lines(unused: Mapping[str, Any]) -> list[str]:
    if not unused["files"]:
        return []
    amount = f"{format_count(unused['files'], 'file')}, {format_bytes(unused['bytes'])}"
    more = f" and {unused['files'] - 1:,} more" if unused["files"] > 1 else ""
    return [
        f"  unused   {amount}: {printable(unused['keys'][0])}{more};"
        " left by another run, or replaced by a repair; this version does not need them"
    ]


def _share(read: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    if read["sample_percent"] is None:
        return ""
    percent = 100 * read["bytes"] / whole["bytes"] if whole["bytes"] else 100.0
    size = format_bytes(whole["bytes"])
    return (
        f": {percent:.3g}% of {format_count(whole['count'], 'file')}, {size}"
        f" (chosen with --seed {read['seed']})"
    )


def _repair_line(row: Mapping[str, Any]) -> str:
    word = "repaired" if row["repair"]["done"] else "refused"
    return f"  {word:<8} {printable(row['path'])}: {printable(row['repair']['message'])}"


def _more(count: int) -> list[str]:
    return [f"           and {count:,} more (--json lists them)"] if count > 0 else []
