"""Makes damaged files again, by the steps of a build, and puts them in their places.

A file is made in a temporary place, and its sha256 is compared with the published one. A file that
differs, or cannot be made, is refused; then the damaged file stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Cache, Dataset
from larder.disk import disk_errors, scratch, sha256_file, workshop
from larder.errors import LarderError, RetryableError, StoreError
from larder.manifest.schemas import INDEXED
from larder.manifest.sealed import StoredFile
from larder.manifest.spool import Spool
from larder.pipeline.planning.expanding import expand_inventory
from larder.pipeline.planning.source_state import take_source
from larder.progress import NullProgress, Progress
from larder.segments.cache_step import CacheBatch, built_split, workshop_place
from larder.segments.completeness import document_of
from larder.segments.derived_files import derived_files
from larder.segments.index_step import make_index
from larder.segments.reader_indexes import put_indexes
from larder.segments.segment_job import Job, PlannedSegment
from larder.segments.shard import pack_again
from larder.segments.shard_receipts import published_plans
from larder.segments.stores import source_of
from larder.shards.formats import shard_format
from larder.source.selection import Unlisted
from larder.store import local_path, open_store
from larder.store.base import Store
from larder.units import format_count
from larder.verify.replacing import STAGE, Repair, check_place, keep, replace_file
from larder.verify.verify_job import (
    Inspected,
    VerifyBatch,
    VerifyJob,
    has_content,
    open_verified,
    readable,
)
from larder.versions import layout
from larder.versions.documents import CacheFile, SegmentDocument, VersionDocument, parse_document
from larder.versions.identity import dataset_cache_id
from larder.versions.leases import claim_version, claimed
from larder.versions.omitted import read_omitted
from larder.versions.publish import probe_conditions, read_segment, read_version
from larder.versions.rows import read_rows
from larder.versions.tags import TAG, move_tag
from larder.versions.version_copy import read_listed

_OF_SEGMENT = ("rows", "sources", "skipped")


class _Refused(Exception):  # noqa: N818 - it is no error of the program
    """Reason why a file cannot be made again."""


def repair_small(
    job: VerifyJob, inspected: Inspected, paths: Sequence[str], *, progress: Progress
) -> list[Repair]:
    """Make manifests again; one that is made from another may need a second call."""
    root, version = open_verified(job), inspected.version
    assert version is not None, "it has named what is damaged"
    repairs: list[Repair] = []
    for file in (file for file in version.files if file.path in paths):
        with _refusing(file.path, repairs):
            repairs.append(Repair(file.path, True, _manifest(job, root, version, file)))
        progress.advance(STAGE, objects=1)
    return repairs


@contextmanager
def _refusing(path: str, repairs: list[Repair]) -> Iterator[None]:
    """Note why a file is not repaired, unless the error is about the whole store."""
    try:
        yield
    except (StoreError, RetryableError):
        raise
    except (_Refused, LarderError) as error:
        repairs.append(Repair(path, False, str(error)))


_NO_SOURCE = "nothing else has what was in it: restore it"


def refusal(job: VerifyJob, path: str, why: str = _NO_SOURCE) -> str:
    """Say why a file of a version cannot be made again, and what to do about it.

    A run makes only the version of ``latest`` again.
    """
    if not job.is_latest:
        return why
    documents = dict.fromkeys([document_of(path), layout.version_key(job.version)])
    return (
        f"{why}, or delete {' and '.join(documents)} and prepare the dataset again, which makes"
        " what is missing"
    )


def _source_changed(job: VerifyJob, why: str) -> str:
    """Say what to do about a changed source; earlier versions may need the segment's document."""
    advice = f"{why}; put what it was made from back as it was, or restore the file"
    if job.is_latest:
        advice += f"; or delete {layout.tag_key(TAG)} and prepare the dataset again, which packs"
        advice += " what the source has now"
    return advice


def name_version(job: VerifyJob, *, progress: Progress) -> Repair:
    """Make ``latest`` name the version that the user has chosen by its ID."""
    root, key = open_verified(job), layout.tag_key(TAG)
    data = readable(root, layout.version_key(job.version)) or b""
    version = parse_document(VersionDocument, data, layout.version_key(job.version))
    repairs: list[Repair] = []
    with _refusing(key, repairs):
        check_place(root, key)
        if etag := keep(root, key):
            root.delete(key, if_match=etag)
        with claimed(root, claim_version(version.id)):
            move_tag(root, TAG, version.id, version.inputs, None, probe_conditions(root))
        repairs.append(Repair(key, True, "it names the version that was asked for"))
    progress.advance(STAGE, objects=1)
    return repairs[0]


def _manifest(job: VerifyJob, root: Store, version: VersionDocument, file: StoredFile) -> str:
    """Make a file again that version.json names; return a message about its origin."""
    check_place(root, file.path)
    with scratch() as folder:
        path, source = _made(job, root, version, file, folder)
        with disk_errors(path, reading=True):
            made = path.stat().st_size, sha256_file(path)
        if made != (file.bytes, file.sha256):
            why = f"made again from {source}, it has other bytes"
            if file.role == "objects":
                why += ": the source has changed; restore it"
                raise _Refused(refusal(job, file.path, why))
            raise _Refused(f"{why}: repair it with the Larder and the packages that wrote it")
        replace_file(root, file, path)
    return f"made again from {source}"


def _made(
    job: VerifyJob, root: Store, version: VersionDocument, file: StoredFile, folder: Path
) -> tuple[Path, str]:
    """Make a file by the steps of a build; return its path, and its origin in words."""
    if file.role == "objects":
        return _inventory(job, folder), "the listing of the source"
    if file.role in ("list", "classes", "readers"):
        document = _segment(root, version.segments[-1].id)
        listed = list(read_listed(root, version.files, read_omitted(root, version)))
        for derived in derived_files(version, document.shape.use, listed):
            if derived.path == file.path:
                path = folder / "derived"
                path.write_bytes(derived.data)
                return path, "version.json and the indexes of its segments"
    if file.role in _OF_SEGMENT and file.path.startswith(layout.SEGMENTS_PREFIX):
        document = _segment(root, layout.segment_of(file.path))
        plans = published_plans(root, document)
        build_job = _job(job.dataset, job.cluster, version, document)
        files = make_index(root, build_job, plans, folder, writes=False).files
        if file.role in files:
            return files[file.role].path, "the receipts of the shards"
    raise _Refused(refusal(job, file.path))


def _inventory(job: VerifyJob, folder: Path) -> Path:
    dataset, cluster, progress = job.dataset, job.cluster, NullProgress()
    unlisted = Unlisted(dataset.source.include, dataset.source.exclude)
    source = source_of(dataset, cluster, unlisted=unlisted)
    inventory = take_source(dataset, cluster, source, unlisted, folder, progress)
    inventory = expand_inventory(
        dataset, cluster, source, inventory, folder, plan_only=True, progress=progress
    )
    return inventory.file.path


def _segment(root: Store, segment: str) -> SegmentDocument:
    document = read_segment(root, segment)
    if document is None:
        raise _Refused(f"{layout.segment_key(segment)} has to be restored first")
    return document


def _job(
    dataset: Dataset, cluster: Cluster, version: VersionDocument, document: SegmentDocument
) -> Job:
    """Return the job that made a segment, with nothing left to plan."""
    update = {
        "validate_": document.validate,
        "on_bad_sample": "skip" if document.skipped else dataset.on_bad_sample,
    }
    return Job(
        dataset=dataset.model_copy(update=update),
        cluster=cluster,
        inputs=version.inputs,
        version=version.id,
        classes=version.classes,
        new=PlannedSegment(document.id, document.shape, complete=True),
        published=True,
    )


def repair_large(
    job: VerifyJob, batch: VerifyBatch, *, progress: Progress, concurrent_batches: int = 1
) -> list[Repair]:
    """Make the damaged files of shards or a cache file again; return the result for each file."""
    root = open_verified(job)
    repairs: list[Repair] = []
    for one in batch.singles:
        repairs += _repaired(job, root, one, concurrent_batches)
        progress.advance(STAGE, objects=1, bytes=one.bytes)
    return repairs


def _repaired(
    job: VerifyJob, root: Store, batch: VerifyBatch, concurrent_batches: int
) -> list[Repair]:
    """Make the damaged files of one shard or cache again."""
    repairs: list[Repair] = []
    missing: list[StoredFile] = []
    for file in batch.published:
        if has_content(root, file):
            repairs.append(Repair(file.path, True, "it is as it was published"))
            continue
        with _refusing(file.path, repairs):
            check_place(root, file.path)
            missing.append(file)
    if missing:
        with workshop(workshop_place(root)) as folder:
            repairs += _made_again(job, root, batch, missing, folder, concurrent_batches)
    return repairs


def _made_again(
    job: VerifyJob,
    root: Store,
    batch: VerifyBatch,
    missing: Sequence[StoredFile],
    folder: Path,
    concurrent_batches: int,
) -> list[Repair]:
    """Make files of a shard or cache, below a folder, and replace each file that is right."""
    output = open_store(str(folder))
    repairs: list[Repair] = []
    why = _source_changed(job, "made again, it has other bytes")
    try:
        _make(job, root, batch, missing, output, concurrent_batches)
    except (StoreError, RetryableError):
        raise
    except (_Refused, LarderError) as error:
        why = str(error)
    for file in missing:
        with _refusing(file.path, repairs):
            if not has_content(output, file):
                raise _Refused(why)
            replace_file(root, file, local_path(output, file.path))
            repairs.append(Repair(file.path, True, "made again"))
    return repairs


def _make(
    job: VerifyJob,
    root: Store,
    batch: VerifyBatch,
    missing: Sequence[StoredFile],
    output: Store,
    concurrent_batches: int,
) -> None:
    """Make the files of a shard or cache, in another store under their keys."""
    version, document = read_version(root, job.version), read_segment(root, batch.segment)
    if version is None or document is None:
        raise _Refused(f"{layout.segment_key(batch.segment)} has to be restored first")
    if batch.cache:
        _make_cache(job, version, document, batch, batch.cache, output)
        return
    (shard,) = batch.shards
    format_ = shard_format(*document.shape.use)
    if batch.index and not any(file.role == "shard" for file in missing):
        rows = read_rows(root, batch.index, shard.first_row, shard.samples)
        spool = Spool.of(rows, INDEXED)
        put_indexes(output, batch.segment, shard.split, shard.name, format_, spool)
        return
    if batch.sources is None:
        raise _Refused("the sources of its segment have to be repaired first")
    build_job = _job(job.dataset, job.cluster, version, document)
    result = pack_again(build_job, shard, batch.sources, output, concurrent_batches)
    if result.failed:
        more = result.failed - 1
        others = f" (and {format_count(more, 'more object')})" if more else ""
        raise _Refused(_source_changed(job, f"{result.failures[0].line}{others}"))


def _make_cache(
    job: VerifyJob,
    version: VersionDocument,
    document: SegmentDocument,
    batch: VerifyBatch,
    file: CacheFile,
    output: Store,
) -> None:
    assert version.cache is not None, "a cache file is of a cache"
    dataset, kind = job.dataset, version.cache.kind
    if dataset.cache is None or dataset.cache.kind != kind:
        if kind == "built":
            raise _Refused("the dataset file names no builder any more; restore it")
        cache = Cache.model_validate({"records": kind})
        dataset = dataset.model_copy(update={"cache": cache})
    if layout.cache_of(file.path) != (document.id, dataset_cache_id(dataset, document.id)):
        raise _Refused(
            "the dataset file, a decoder or a builder makes another cache now; restore it"
        )
    if batch.index is None:
        raise _Refused("the index of its segment has to be repaired first")
    facts = document.splits.get(file.split)
    if facts is None:
        raise _Refused(f"its segment has no split {file.split}")
    cache_batch = CacheBatch(document, file.split, facts.first_row, facts.samples)
    build_job = _job(dataset, job.cluster, version, document)
    with built_split(build_job, cache_batch, progress=NullProgress()) as (path, made):
        if made.path == file.path:
            output.upload(file.path, path)
        else:
            same = "the same" if made.digest == file.digest else "other"
            raise _Refused(
                f"built again, it has other bytes and {same} records: repair it on a machine like"
                " the one that built it, with the same packages, or restore the file"
            )
