"""Repair: makes again exactly what is damaged, to the same bytes, and replaces nothing else.

Documents first, then the manifests that they name, then shards, then the caches that are made from
these. Foreign files are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from larder.errors import DamageError, ObjectError
from larder.pipeline.findings import Finding
from larder.pipeline.repairing_caches import CacheRepair, repair_cache
from larder.pipeline.repairing_documents import repair_document
from larder.pipeline.repairing_files import Repair, clear_aside, keep_aside, refused
from larder.pipeline.repairing_manifests import repair_manifest
from larder.pipeline.repairing_shards import STAGE, ShardRepairs, repair_shards
from larder.pipeline.runner import Runner
from larder.pipeline.verifying_job import (
    Inspected,
    ShardToVerify,
    VerifyBatch,
    VerifyJob,
    open_verified,
    readable,
)
from larder.progress import Progress
from larder.versions import layout
from larder.versions.documents import SegmentDocument, Shape, parse_document
from larder.versions.publish import own_file_errors

__all__ = ["Repair", "end_repair", "keep_right", "repair_large", "repair_small"]

_LARGE = ("shard", "index", "cache")

_Kept = tuple[str, int, str]
"""Path, length and sha256 of a file that is kept aside."""


def repair_small(
    job: VerifyJob,
    inspected: Inspected,
    findings: Sequence[Finding],
    trial: bool,
    *,
    progress: Progress,
) -> list[Repair]:
    """Repair documents and manifests.

    Args:
        job: The verification.
        inspected: The version, as far as it is known.
        findings: What is damaged: tags, documents and manifests.
        trial: Whether nothing is written.
        progress: Reports progress of stage ``repair``.

    Raises:
        StoreError: A store refuses access.
    """
    progress.start(STAGE, objects=len(findings))
    root = open_verified(job)
    version = inspected.version
    files = {file.path: file for file in version.files} if version else {}
    recorded = [(file.path, file.sha256) for file in files.values()]
    twins = _twins(recorded, findings)
    if not trial:
        for path, size_bytes, sha256 in _exchanged(
            {file.path: (file.bytes, file.sha256) for file in files.values()}, findings, twins
        ):
            keep_aside(root, path, size_bytes, sha256)
    found = []
    for path in dict.fromkeys(finding.path for finding in findings):
        try:
            with own_file_errors():
                if path in files and version:
                    repair = repair_manifest(job, root, version, files[path], twins, trial=trial)
                else:
                    repair = repair_document(job, root, inspected, path, trial=trial)
        except ObjectError as error:
            repair = refused(path, error)
        found.append(repair)
        progress.advance(STAGE, objects=1)
    progress.finish(STAGE)
    return found


def repair_large(
    job: VerifyJob,
    runner: Runner,
    inspected: Inspected,
    findings: Sequence[Finding],
    *,
    plan_only: bool,
) -> list[Repair]:
    """Repair shards, then caches, in batches.

    Args:
        job: The verification.
        runner: Runs the steps.
        inspected: The version.
        findings: What is damaged.
        plan_only: Whether nothing is written.
    """
    damaged = {finding.path for finding in findings if finding.role in _LARGE}
    version = inspected.version
    if not damaged or version is None:
        if version is not None and not plan_only:
            runner.run(end_repair, job)
        return []
    recorded = dict(_recorded(inspected.batches))
    twins = _twins([(path, sha256) for path, (_, sha256) in recorded.items()], findings)
    kept = list(_exchanged(recorded, findings, twins))
    if kept and not plan_only:
        runner.run(keep_right, job, kept)
    shards = list(_shard_repairs(job, inspected, damaged, twins, plan_only))
    caches = [
        CacheRepair(
            file=batch.cache,
            kind=version.cache.kind,  # type: ignore[union-attr, arg-type]
            decoders=version.cache.decoders,  # type: ignore[union-attr]
            shape=_shape(job, batch.segment),
            samples=batch.samples,
            first_row=batch.first_row,
            twins=twins,
            trial=plan_only,
        )
        for batch in inspected.batches
        if batch.cache and batch.cache.path in damaged
    ]
    count = sum(len(each.batch.shards) for each in shards) + len(caches)
    runner.progress.start(STAGE, objects=count)
    found: list[Repair] = []
    for step, batches in ((repair_shards, shards), (repair_cache, caches)):
        if batches:
            found += [repair for some in runner.map(step, job, batches) for repair in some]
    runner.progress.finish(STAGE)
    if not plan_only and all(repair.done for repair in found):
        runner.run(end_repair, job)
    return found


def keep_right(job: VerifyJob, kept: Sequence[_Kept], *, progress: Progress) -> None:
    """Keep files aside that are about to be replaced, but have the right content of others.

    Args:
        job: The verification.
        kept: Path, length and sha256 of each.
        progress: May stop this.
    """
    root = open_verified(job)
    for path, size_bytes, sha256 in kept:
        keep_aside(root, path, size_bytes, sha256)
        progress.advance(STAGE)


def end_repair(job: VerifyJob, *, progress: Progress) -> None:
    """Delete what was kept aside, as nothing is left that it could repair.

    Args:
        job: The verification.
        progress: May stop this.
    """
    progress.advance(STAGE)
    clear_aside(open_verified(job))


def _recorded(batches: Iterable[VerifyBatch]) -> Iterable[tuple[str, tuple[int, str]]]:
    """By path, the length and sha256 of the files in some batches."""
    for batch in batches:
        if batch.cache:
            yield batch.cache.path, (batch.cache.bytes, batch.cache.sha256)
        for shard in batch.shards:
            for file in shard.files:
                path = layout.shard_key(batch.segment, shard.split, file.name)
                yield path, (file.bytes, file.sha256)


def _twins(
    recorded: Iterable[tuple[str, str]], findings: Iterable[Finding]
) -> dict[str, tuple[str, ...]]:
    """By path of a damaged file, the files that have its right content.

    Files whose recorded digest is the same, and damaged files that were found to have it.
    """
    have: dict[str, list[str]] = {}
    damaged = set()
    for finding in findings:
        damaged.add(finding.path)
        if finding.sha256:
            have.setdefault(finding.sha256, []).append(finding.path)
    wanted = {}
    for path, sha256 in recorded:
        if path in damaged:
            wanted[path] = sha256
        elif sha256:
            have.setdefault(sha256, []).append(path)
    return {
        path: tuple(other for other in have[sha256] if other != path)
        for path, sha256 in wanted.items()
        if sha256 in have
    }


def _exchanged(
    recorded: Mapping[str, tuple[int, str]],
    findings: Iterable[Finding],
    twins: Mapping[str, tuple[str, ...]],
) -> Iterable[_Kept]:
    """The damaged files that have the right content of others: they are replaced themselves."""
    found = {finding.path: finding.sha256 for finding in findings if finding.path in recorded}
    sizes = {sha256: size_bytes for size_bytes, sha256 in recorded.values()}
    for path in dict.fromkeys(other for others in twins.values() for other in others):
        if found.get(path) in sizes:
            yield path, sizes[found[path]], found[path]


def _shard_repairs(
    job: VerifyJob,
    inspected: Inspected,
    damaged: set[str],
    twins: Mapping[str, tuple[str, ...]],
    trial: bool,
) -> Iterable[ShardRepairs]:
    for batch in inspected.batches:
        own = {
            shard: frozenset(path for path in _paths(batch.segment, shard) if path in damaged)
            for shard in batch.shards
        }
        shards = tuple(shard for shard, paths in own.items() if paths)
        if shards:
            paths = frozenset(path for shard in shards for path in own[shard])
            yield ShardRepairs(
                batch=replace(batch, shards=shards),
                shape=_shape(job, batch.segment),
                damaged=paths,
                twins={path: twins[path] for path in paths if path in twins},
                trial=trial,
            )


def _paths(segment: str, shard: ShardToVerify) -> Iterable[str]:
    """The files of a shard, then its indexes for other readers."""
    for file in shard.files:
        yield layout.shard_key(segment, shard.split, file.name)
    for index in shard.indexes:
        yield layout.reader_index_key(segment, index.kind, shard.split, index.name)


def _shape(job: VerifyJob, segment: str) -> Shape | None:
    """The shape of a segment; None if its document is damaged."""
    key = layout.segment_key(segment)
    data = readable(open_verified(job), key)
    try:
        return parse_document(SegmentDocument, data or b"", key).shape
    except DamageError:
        return None
