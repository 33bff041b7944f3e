"""The composition of a verification: small files, then shards and caches in batches; and repair.

Each repair comes before the steps that need its result: manifests name shards, and caches are made
from shards. Documents stay as they are, damaged or not, because nothing else has their content. A
verification without repair writes nothing. The result is a JSON document.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from larder.errors import ConfigError, printable
from larder.jobs.results import Totals
from larder.jobs.step_runner import Runner
from larder.pipeline.settings import Settings
from larder.progress import TimedProgress
from larder.segments.stores import root_url
from larder.units import format_bytes, format_count, format_seconds
from larder.verify.document_check import is_id
from larder.verify.reading import STAGE, merge_verified, verify_batch
from larder.verify.replacing import STAGE as REPAIR
from larder.verify.replacing import Repair
from larder.verify.survey import inspect_version
from larder.verify.verify_job import (
    DamagedError,
    Finding,
    Inspected,
    Verified,
    VerifyBatch,
    VerifyJob,
    open_verified,
)
from larder.versions import layout
from larder.versions.leases import Claim, claimed
from larder.versions.tags import TAG

_LARGE = ("shard", "index", "cache")
_SHARDS = 16
"""Maximum number of shards that a task makes again."""

SHOWN_FINDINGS = 1_000
"""Maximum number of findings in a document; the others are counted."""
_SHOWN_LINES = 20


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """The options of a verification; ``version`` is an ID or a tag.

    ``sample_percent`` of the shards and cache files are read; None reads all. Without a ``seed``,
    every verification chooses others.
    """

    settings: Settings
    version: str = "latest"
    sample_percent: float | None = None
    seed: int | None = None
    repair: bool = False

    def job(self) -> VerifyJob:
        """Return the job of a verification, with a seed."""
        settings, percent = self.settings, self.sample_percent
        if percent is not None and not 0 < percent <= 100:
            message, hint = "expected a percentage above 0, up to 100", "5 is five percent"
            raise ConfigError("config.invalid_value", message, where="sample", hint=hint)
        if percent is not None and self.repair:
            message = "a repair reads everything, as a file may have the content of any other"
            hint = "leave it out, or verify without repair"
            raise ConfigError("config.invalid_value", message, where="sample", hint=hint)
        seed = secrets.randbelow(1 << 32) if self.seed is None else self.seed
        return VerifyJob(
            settings.dataset, settings.cluster, self.version, percent, seed, is_id(self.version)
        )


def verify(options: VerifySettings, runner: Runner) -> dict[str, Any]:
    """Read a version again, compare it with its published state, and repair it if asked to.

    Returns the JSON document; while a file is damaged, a `DamagedError` has the document. Refused:
    ``version.missing``.
    """
    verification = _Verification(options.job(), runner)
    verification.inspect()
    if options.repair:
        with claimed(open_verified(verification.job), Claim.of_run([])):
            verification.repair_small()
            verification.read()
            verification.repair_large()
            verification.end()
    else:
        verification.read()
    findings, left = tuple(dict.fromkeys(verification.before)), verification.left
    document = verify_document(
        verification.job,
        verification.inspected,
        findings,
        left,
        verification.repairs,
        verification.verified.read,
        runner.times,
    )
    if left:
        raise DamagedError(left[0], len(left) - 1, _hint(left, options.repair), document)
    return document


def _hint(left: Sequence[Finding], repair: bool) -> str:
    if all(finding.role == "foreign" for finding in left):
        return "Larder never deletes such files: move them elsewhere, or delete them yourself"
    if left[0].role == "tag":
        choose = "choose a version: --version ID --repair"
        return f"restore it, or {choose if left[0].path == layout.tag_key(TAG) else 'delete it'}"
    if repair:
        return "what could not be repaired says why"
    return "--repair makes again what is damaged, or says why it cannot"


@dataclass
class _Verification:
    """A verification in progress.

    ``small`` is from the last inspection, ``verified`` from the last reading. ``before`` has all
    findings in order; ``repairs`` are by path.
    """

    job: VerifyJob
    runner: Runner
    inspected: Inspected = field(default_factory=lambda: Inspected(None, ""))
    small: Sequence[Finding] = ()
    before: list[Finding] = field(default_factory=list)
    verified: Verified = field(default_factory=Verified)
    repairs: dict[str, Repair] = field(default_factory=dict)

    @property
    def left(self) -> list[Finding]:
        """Findings that are left; repaired manifests were inspected again."""
        since = (*_LARGE, "tag")
        done = self._done()
        return [
            finding
            for finding in dict.fromkeys([*self.small, *self.verified.findings])
            if not (finding.path in done and finding.role in since)
        ]

    def inspect(self) -> None:
        self.inspected, self.small = self.runner.run(inspect_version, self.job)
        self.before += self.small
        self.job = self.job._replace(
            version=self.inspected.id or self.job.version, is_latest=self.inspected.is_latest
        )

    def repair_small(self) -> None:
        """Repair manifests and inspect again, until a round repairs none.

        A repaired manifest names files that only the next inspection can check.
        """
        from larder.verify.repair import repair_small

        while due := self._due(self.small, ("manifest",)):
            before = self._done()
            with self._repairing(due):
                self._note(self.runner.run(repair_small, self.job, self.inspected, due))
            if self._done() == before:
                break
            self.inspect()

    def read(self) -> None:
        batches = self.inspected.batches
        results: list[Verified] = []
        if batches:
            files, size_bytes = sum(one.files for one in batches), sum(one.bytes for one in batches)
            self.runner.progress.start(STAGE, objects=files, bytes=size_bytes)
            results = self.runner.map(verify_batch, self.job, batches)
            self.runner.progress.finish(STAGE)
        self.verified = merge_verified(results)
        self.before += self.verified.findings

    def repair_large(self) -> None:
        """Repair shards, segment by segment, then caches."""
        from larder.verify.repair import repair_large

        damaged = self._due(self.verified.findings, _LARGE)
        if not damaged:
            return
        due = [
            one
            for batch in self.inspected.batches
            for one in batch.singles
            if not set(damaged).isdisjoint(file.path for file in one.published)
        ]
        with self._repairing(damaged):
            for group in _groups(due):
                for repairs in self.runner.map(repair_large, self.job, group):
                    self._note(repair for repair in repairs if repair.path in damaged)
        if not self._done().isdisjoint(damaged):
            self.inspect()

    def end(self) -> None:
        """Refuse to repair documents; set a lost tag, if the user has chosen a version."""
        from larder.verify.repair import name_version, refusal

        for path in {finding.path for finding in self.left if finding.role == "document"}:
            self.repairs[path] = Repair(path, False, refusal(self.job, path))
        key = layout.tag_key(TAG)
        tags = {finding.path for finding in self.left if finding.role == "tag"}
        others = [each for each in self.left if each.role != "foreign" and each.path != key]
        for path in tags:
            message = "nothing else says which version it named; restore it, or "
            message += "choose one: --version ID --repair" if path == key else "delete it"
            if path == key and self.job.by_id:
                message = "repair, or move away, the rest first"
            self.repairs[path] = Repair(path, False, message)
        if key in tags and self.job.by_id and not others:
            self.repairs[key] = self.runner.run(name_version, self.job)

    def _due(self, findings: Iterable[Finding], roles: Sequence[str]) -> list[str]:
        """Return the paths to repair, without paths whose earlier repair was no help."""
        paths = dict.fromkeys(finding.path for finding in findings if finding.role in roles)
        done = self._done()
        return [path for path in paths if path not in done]

    @contextmanager
    def _repairing(self, paths: Sequence[str]) -> Iterator[None]:
        self.runner.progress.start(REPAIR, objects=len(paths))
        yield
        self.runner.progress.finish(REPAIR)

    def _note(self, repairs: Iterable[Repair]) -> None:
        self.repairs |= {repair.path: repair for repair in repairs}

    def _done(self) -> set[str]:
        return {path for path, repair in self.repairs.items() if repair.done}


def _groups(batches: Iterable[VerifyBatch]) -> Iterator[list[VerifyBatch]]:
    """Yield batches to repair at the same time: shards, segment by segment, then all caches."""
    by_segment: dict[str, list[VerifyBatch]] = {}
    for batch in batches:
        by_segment.setdefault("" if batch.cache else batch.segment, []).append(batch)
    caches = by_segment.pop("", [])
    for group in by_segment.values():
        shards = [shard for batch in group for shard in batch.shards]
        starts = range(0, len(shards), _SHARDS)
        yield [replace(group[0], shards=tuple(shards[at : at + _SHARDS])) for at in starts]
    if caches:
        yield caches


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
        "storage": root_url(job.dataset.name, job.cluster),
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
