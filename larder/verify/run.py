"""The composition of a verification: what is small, then shards and caches in batches, then repair.

::

    inspect_version -> verify_batch ... -> repair, if asked for

A verification without repair writes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from larder.errors import ConfigError, DamageError
from larder.manifest.schemas import SHARDS
from larder.pipeline.findings import DamagedError, Finding, Verified
from larder.pipeline.job import ManifestRef
from larder.pipeline.manifests import read_ref
from larder.pipeline.repairing import Repair, repair_large, repair_small
from larder.pipeline.republishing import republish
from larder.pipeline.results import Totals
from larder.pipeline.runner import Runner
from larder.pipeline.settings import Settings
from larder.pipeline.verifying_batch import STAGE, verify_batch
from larder.pipeline.verifying_documents import inspect_version
from larder.pipeline.verifying_job import Inspected, VerifyJob, open_verified
from larder.pipeline.verifying_report import Outcome, verify_document
from larder.shards.inspected import MISSING
from larder.versions import layout

__all__ = ["VerifySettings", "verify"]

_SMALL = ("tag", "document", "manifest")


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """What a verification is told.

    Attributes:
        settings: Dataset and cluster.
        version: ID of the version, or a tag.
        sample_percent: Percentage of the shards and cache files to read; None reads all.
        seed: Of the choice of these; None chooses others every time.
        repair: Whether to make again what is damaged.
    """

    settings: Settings
    version: str = "latest"
    sample_percent: float | None = None
    seed: int | None = None
    repair: bool = False

    def job(self) -> VerifyJob:
        """The job of a verification; with a seed.

        Raises:
            ConfigError: ``config.invalid_value``: no percentage, or no seed.
        """
        settings = self.settings
        percent = self.sample_percent
        if percent is not None and not (_is_number(percent, int | float) and 0 < percent <= 100):
            message, hint = "expected a percentage above 0, up to 100", "5 is five percent"
            raise ConfigError("config.invalid_value", message, where="sample", hint=hint)
        if self.seed is not None and not (_is_number(self.seed, int) and self.seed >= 0):
            message, hint = "expected a whole number", "such as 7"
            raise ConfigError("config.invalid_value", message, where="seed", hint=hint)
        seed = secrets.randbelow(1 << 32) if self.seed is None else self.seed
        return VerifyJob(settings.dataset, settings.cluster, self.version, percent, seed)


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def verify(asked: VerifySettings, runner: Runner, *, plan_only: bool = False) -> dict[str, Any]:
    """Read a version again, and compare it with what was published.

    Args:
        asked: What to do.
        runner: Runs the steps.
        plan_only: Whether a repair is only tried: everything is made again, and nothing is written.

    Returns:
        The JSON document, if nothing is damaged, or not any more.

    Raises:
        DamagedError: Something is damaged; with the same document.
        ConfigError: ``version.missing``: there is no such version or tag.
        StoreError: The storage refuses access.
        LarderError: Any other failure.
    """
    job = asked.job()
    inspected, small = runner.run(inspect_version, job)
    by_id = inspected.id == job.version
    job = replace(job, version=inspected.id or job.version, by_id=by_id)
    repairs: list[Repair] = []
    before = list(small)
    if asked.repair:
        inspected, small, repairs = _repair_small(job, runner, inspected, small, plan_only)
        if _is_lost(inspected, small, repairs):
            repair = republish(job, asked.settings, runner, inspected.id, trial=plan_only)
            repairs = [*(old for old in repairs if old.path != repair.path), repair]
            if repair.done and not plan_only:
                inspected, small = runner.run(inspect_version, job)
                inspected, small, more = _repair_small(job, runner, inspected, small, plan_only)
                repairs += more
    verified = _verify_batches(job, runner, inspected)
    large = _with_twins(job, inspected, (*small, *verified.findings))[len(small) :]
    if asked.repair:
        repairs += repair_large(job, runner, inspected, large, plan_only=plan_only)
    now = _once([*small, *large])
    outcome = Outcome(
        job,
        inspected,
        _once([*before, *now]),
        now,
        tuple(repairs),
        verified.read,
        plan_only=plan_only,
    )
    document = verify_document(outcome, runner.times)
    left = outcome.left
    if left:
        hint = outcome.hint(asked.repair)
        raise DamagedError(left[0], len(left) - 1, hint, document)
    return document


def _is_lost(inspected: Inspected, findings: Iterable[Finding], repairs: Iterable[Repair]) -> bool:
    """Whether the document of the version is missing, and nothing in the storage leads to it."""
    path = layout.version_key(inspected.id)
    if inspected.version is not None or any(done.path == path and done.done for done in repairs):
        return False
    return any(finding.path == path and finding.message.startswith(MISSING) for finding in findings)


def _repair_small(
    job: VerifyJob,
    runner: Runner,
    inspected: Inspected,
    findings: tuple[Finding, ...],
    plan_only: bool,
) -> tuple[Inspected, tuple[Finding, ...], list[Repair]]:
    """Repair documents and manifests, one after the other: each names what is looked at next."""
    repairs: dict[str, Repair] = {}
    while due := [finding for finding in findings if finding.role in _SMALL]:
        twins = _with_twins(job, inspected, due)
        found = runner.run(repair_small, job, inspected, twins, plan_only)
        new = [repair for repair in found if repair.done and not _is_done(repairs, repair.path)]
        repairs |= {repair.path: repair for repair in found}
        if plan_only or not new:
            break
        inspected, findings = runner.run(inspect_version, job)
    return inspected, findings, list(repairs.values())


def _is_done(repairs: Mapping[str, Repair], path: str) -> bool:
    """Whether a file was repaired before: if it is found again, that was no help."""
    return path in repairs and repairs[path].done


def _verify_batches(job: VerifyJob, runner: Runner, inspected: Inspected) -> Verified:
    batches = inspected.batches
    if not batches:
        return Verified()
    files, size_bytes = sum(batch.files for batch in batches), sum(batch.bytes for batch in batches)
    runner.progress.start(STAGE, objects=files, bytes=size_bytes)
    results: list[Verified] = runner.map(verify_batch, job, batches)
    runner.progress.finish(STAGE)
    return Verified(
        tuple(finding for result in results for finding in result.findings),
        sum((result.read for result in results), Totals()),
    )


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings without repetitions, in their order."""
    return tuple(dict.fromkeys(findings))


def _with_twins(job: VerifyJob, inspected: Inspected, findings: Sequence[Finding]) -> list[Finding]:
    """Findings that say so if a file has the content of another one of the version."""
    unknown = {finding.sha256 for finding in findings if finding.sha256}
    twins: dict[str, str] = {}
    for path, sha256 in _published(job, inspected) if unknown else ():
        if sha256 in unknown:
            twins.setdefault(sha256, path)
    return [
        finding.with_twin(twins[finding.sha256])
        if twins.get(finding.sha256, finding.path) != finding.path
        else finding
        for finding in findings
    ]


def _published(job: VerifyJob, inspected: Inspected) -> Iterable[tuple[str, str]]:
    """The paths of all files of a version whose digests are recorded, with these."""
    version = inspected.version
    if version is None:
        return
    yield from ((file.path, file.sha256) for file in version.files)
    for files in version.cache.splits.values() if version.cache else ():
        yield from ((file.path, file.sha256) for file in files)
    root = open_verified(job)
    for manifest in version.files_of("shards"):
        try:
            for batch in read_ref(root, ManifestRef.of(manifest), SHARDS):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                for segment, split, name, _, _, sha256 in rows:
                    yield layout.shard_key(segment, split, name), sha256
        except DamageError:
            continue  # it is among the findings itself
