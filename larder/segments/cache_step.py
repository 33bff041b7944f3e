"""The cache step: one LMDB file per split of a segment, built on a local disk, verified, stored."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from larder.budgets import decoding_budget, map_ahead
from larder.cache.file import open_file
from larder.cache.from_samples import (
    CacheInput,
    EncodedRecord,
    build_samples,
    built_records,
    built_schema,
    encoded_records,
)
from larder.cache.schema import RecordSchema
from larder.disk import disk_errors, workshop
from larder.errors import Failure, FatalError, NotFoundError, ObjectError
from larder.jobs.crew import reachable, saves_time
from larder.jobs.processes import ProcessPool, shared_pool
from larder.jobs.results import BatchReport, RunError
from larder.jobs.step_runner import runner_batches
from larder.manifest.sealed import from_plain, seal, unseal
from larder.progress import Progress
from larder.samples.decoders import Builder, Decoders, builder_of
from larder.samples.indexed import SampleReader, read_index
from larder.segments.completeness import written_since
from larder.segments.image_rules import image_rules
from larder.segments.segment_job import Job, open_root
from larder.shards.formats import shard_format
from larder.shards.images.check import FormNote, FormTally, check_decodable, joined, note_role
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.own_files import has_sha256, listed, read_document
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import CacheFile, SegmentDocument
from larder.versions.identity import cache_builder, cache_decoders, dataset_cache_id
from larder.versions.publish import read_cache, read_version
from larder.versions.rows import read_rows

_SAMPLE_SECONDS = 0.4e-3
_PIECE_ROWS = 256
_PIECE_BYTES = 2_000_000
"""Maximum number of samples, and their approximate bytes, that a process decodes at a time."""
_PIECES = 4
"""Pieces per process into which a builder's samples are split."""

DISK_RESERVE = 0.05
"""The fraction of the disk space, free when a cache file is started, that remains free."""


class CacheBatch(NamedTuple):
    """Samples of one split of a segment: rows of its index, counted over all splits."""

    segment: SegmentDocument
    split: str
    first_row: int
    rows: int

    @property
    def bytes(self) -> int:
        """Total size of the split's shards."""
        return self.segment.splits[self.split].bytes


def cache_splits(
    job: Job, segments: Iterable[SegmentDocument], progress: Progress
) -> tuple[list[CacheBatch], list[CacheFile]]:
    """Return the files to build, one per split with samples, and the files of complete caches.

    Altered or missing files of a complete cache are built again. Files of the new segment are known
    by their receipts: they may come from a killed run, and nothing has checked them since.
    """
    batches: list[CacheBatch] = []
    complete: list[CacheFile] = []
    if job.dataset.cache is None:
        return batches, complete
    root = open_root(job)
    for segment in segments:
        is_new = job.new is not None and segment.id == job.new.id and not job.new.complete
        files = {} if is_new else _complete_files(root, segment.id, job, progress)
        complete += files.values()
        batches += (
            CacheBatch(segment, split, facts.first_row, facts.samples)
            for split, facts in segment.splits.items()
            if facts.samples and split not in files
        )
    return batches, complete


def _complete_files(
    root: Store, segment: str, job: Job, progress: Progress
) -> dict[str, CacheFile]:
    """Return the intact files of a complete cache by split; empty if it is not complete."""
    cache = dataset_cache_id(job.dataset, segment)
    document = read_cache(root, segment, cache) if cache else None
    if document is None or cache is None:
        return {}
    infos = {info.key: info for info in listed(root, layout.cache_prefix(segment, cache))}
    files = [
        file
        for file in document.files.values()
        if file.path in infos and infos[file.path].size_bytes == file.bytes
    ]

    def is_published() -> bool:
        version = read_version(root, job.expected) if job.expected else None
        uses = version.segments if version else ()
        return any((use.id, use.cache) == (segment, cache) for use in uses)

    digests = {file.path: file.sha256 for file in files}
    key = layout.cache_key(segment, cache)
    since_us = infos[key].clock_us if key in infos else 0
    altered = written_since(root, since_us, infos, digests, progress, is_published)
    return {file.split: file for file in files if file.path not in altered}


def cache_split(
    job: Job, batch: CacheBatch, *, progress: Progress, concurrent_batches: int = 1
) -> CacheFile:
    """Build and store the file of one split of a segment, unless it is stored already.

    Files that one process builds concurrently share ``copy.memory_bytes`` and the disk.
    """
    root = open_root(job)
    cache = dataset_cache_id(job.dataset, batch.segment.id)
    assert cache is not None, "there is no cache to build"
    note = f"{layout.cache_work_prefix(batch.segment.id, cache)}{batch.split}.json"
    file = _stored(root, note)
    if file is not None:
        progress.advance("cache", objects=batch.rows, bytes=batch.bytes)
        return file
    with built_split(job, batch, progress=progress) as (path, file):
        stored = root.upload(file.path, path)
    _leave_receipt(root, note, file, stored.etag)
    return file


def _stored(root: Store, note: str) -> CacheFile | None:
    """Return the cache file of a receipt, if the stored file matches the receipt.

    A file with another etag is read. If it is right, the receipt gets its etag. A receipt that no
    run could have written is ignored.
    """
    try:
        plain = unseal(read_document(root, note), object_url(root.url, note))
        etag = plain.pop("etag", "")
        file = from_plain(CacheFile, plain)
        info = root.head(file.path)
    except (NotFoundError, ValueError):
        return None
    if info.size_bytes != file.bytes:
        return None
    if info.etag != etag:
        if not has_sha256(root, info, file.sha256):
            return None
        _leave_receipt(root, note, file, info.etag)
    return file


def _leave_receipt(root: Store, note: str, file: CacheFile, etag: str) -> None:
    root.put(note, seal({**asdict(file), "etag": etag}))


@contextmanager
def built_split(
    job: Job, batch: CacheBatch, *, progress: Progress
) -> Iterator[tuple[Path, CacheFile]]:
    """Build the file of one split of a segment in a temporary folder, and verify it."""
    root = open_root(job)
    cache = dataset_cache_id(job.dataset, batch.segment.id)
    assert cache is not None, "there is no cache to build"
    place = layout.cache_place(batch.segment.id, cache, batch.split)
    with shared_pool(_processes(job, batch)) as pool, workshop(workshop_place(root)) as folder:
        path = folder / f"{batch.split}.mdb"
        samples, builder = _samples(job, root, batch), _builder(job)
        encode = partial(_encoded, job, batch, folder, place, pool) if pool else None
        if builder and encode is None:
            encode = partial(built_records, samples, builder, place=place)
        facts = build_samples(
            samples,
            path,
            place=place,
            schema=built_schema(samples, builder) if builder else None,
            encode=encode,
            reserve_bytes=max(1, int(shutil.disk_usage(folder).free * DISK_RESERVE)),
            budget=decoding_budget(job.cluster.copy_.memory),
            progress=progress,
        )
        with closing(open_file(path, facts)) as built:
            built.verify()
            fields = {field.name: field.kind for field in built.schema.fields}
        yield (
            path,
            CacheFile(
                path=layout.cache_file_key(facts.place, facts.sha256),
                bytes=facts.bytes,
                sha256=facts.sha256,
                digest=facts.digest,
                records=facts.records,
                segment=batch.segment.id,
                split=batch.split,
                fields=fields,
            ),
        )


def workshop_place(root: Store) -> Path:
    """Return the folder to build in; any run finds the files of a killed run there."""
    if root.features.local_path:
        return local_path(root, "x").parent
    return Path(tempfile.gettempdir())


def _samples(job: Job, root: Store, batch: CacheBatch) -> CacheInput:
    assert job.dataset.cache is not None, "there is no cache to build"

    def rows() -> Iterator[pa.RecordBatch]:
        return read_rows(root, batch.segment.file("rows"), batch.first_row, batch.rows)

    def open_shard(name: str) -> SampleReader:
        key = layout.shard_key(batch.segment.id, batch.split, name)
        return shard_format(*batch.segment.shape.use).open(root, key)

    return CacheInput(
        rows,
        open_shard,
        kind=job.dataset.cache.records,  # with a builder: parts are read as they are
        max_pixels=job.dataset.images.max_pixels,
        decoders=Decoders(cache_decoders(job.dataset)),
        shape=job.dataset.cache.image_shape,
    )


def _builder(job: Job) -> Builder | None:
    use = cache_builder(job.dataset)
    return builder_of(use) if use else None


def _processes(job: Job, batch: CacheBatch) -> int:
    """Return how many processes decode the samples of a split, or call its builder.

    1 if more processes cannot help or save no time. 1 on Dask and Ray, whose workers have one core.
    """
    assert job.dataset.cache is not None, "there is a cache to build"
    runner = job.cluster.runner
    here = runner.kind != "local" or not reachable(job.cluster.storage)
    builder = _builder(job)
    if here or not (builder.is_divided if builder else job.dataset.cache.kind == "decoded"):
        return 1
    count = runner_batches(runner, job.cluster.copy_)
    return count if saves_time(_SAMPLE_SECONDS * batch.rows, count) else 1


def _encoded(
    job: Job, batch: CacheBatch, folder: Path, place: str, pool: ProcessPool, schema: RecordSchema
) -> Generator[EncodedRecord]:
    """Yield the records of a split, which the processes of a pool make piece by piece.

    Records come in files: large values take several times as long through a pipe.
    """
    mean_bytes = max(1, batch.bytes // batch.rows)
    rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES // mean_bytes))
    if _builder(job):  # a builder may take long to start
        rows = -(-batch.rows // (_PIECES * pool.count))
    stop = batch.first_row + batch.rows
    pieces = [
        batch._replace(first_row=first, rows=min(rows, stop - first))
        for first in range(batch.first_row, stop, rows)
    ]

    def encode(piece: CacheBatch) -> list[EncodedRecord]:
        number = piece.first_row - batch.first_row
        path, shard = folder / f"{batch.split}-{number}", (number // rows, len(pieces))
        sizes = pool.call(
            encode_samples, job, piece, schema, number, path, place, shard, unit=place
        )
        with path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        path.unlink()
        ends = accumulate(length for length, _ in sizes)
        return [
            EncodedRecord(content[end - length : end], source_bytes)
            for end, (length, source_bytes) in zip(ends, sizes, strict=True)
        ]

    with ThreadPoolExecutor(pool.count, thread_name_prefix="cache") as threads:
        for records in map_ahead(threads, encode, pieces, window=pool.count + 1):
            yield from records


def encode_samples(
    job: Job,
    piece: CacheBatch,
    schema: RecordSchema,
    first_number: int,
    path: Path,
    place: str,
    shard: tuple[int, int],
) -> list[tuple[int, int]]:
    """Write the records of a piece to a file; return their lengths, and the bytes of their parts.

    ``shard`` is the number of this piece, and the number of pieces.
    """
    samples, sizes, builder = _samples(job, open_root(job), piece), [], _builder(job)
    if builder:
        made = built_records(
            samples, builder, schema, place, first_number=first_number, shard=shard
        )
    else:
        made = encoded_records(samples, schema, place, first_number=first_number)
    with disk_errors(path), path.open("wb") as file:
        for record, source_bytes in made:
            file.write(record)
            sizes.append((len(record), source_bytes))
    return sizes


def check_fields(files: Iterable[CacheFile]) -> None:
    """Check that the files of each split can be read as one; if not, ``cache.schema``."""
    firsts: dict[tuple[str, str], CacheFile] = {}
    for file in files:
        for name, kind in file.fields.items():
            first = firsts.setdefault((file.split, name), file)
            if first.fields[name] != kind:
                message = (
                    f"field {name!r} of split {file.split!r} is {kind}, but {first.fields[name]}"
                    f" in segment {first.segment}"
                )
                hint = "use a cache of encoded records, or images of one kind"
                raise FatalError("cache.schema", message, where=file.path, hint=hint)


_HINT = "convert or exclude one of them, or set cache.records: encoded"
_LOOKED_AT = 1_000


def check_forms(job: Job, root: Store, forms: Mapping[str, tuple[FormNote, ...]]) -> None:
    """Refuse parts that differ from the others, naming one part of either kind (``cache.schema``).

    In each split, parts of a role must have the same type of elements, also in kept segments. Parts
    that are not images must also have the same number of dimensions.
    """
    cache = job.dataset.cache
    if cache is None or cache.kind != "decoded":
        return
    failures: list[Failure] = []
    count = 0
    for split, notes in forms.items():
        kept = (
            joined(_looked_at(job, root, segment, split) for segment in job.kept) if notes else ()
        )
        for name in dict.fromkeys(note.role for note in notes):
            new = [note for note in notes if note.role == name]
            before = [note for note in kept if note.role == name]
            for odd, failure in _differing(new, before):
                failures.append(failure)
                count += odd
    if failures:
        raise RunError("shard", BatchReport(failures=tuple(failures), failed=count), hint=_HINT)


def _differing(new: list[FormNote], before: list[FormNote]) -> Iterator[tuple[int, Failure]]:
    """Yield the kinds of parts of one role that differ, with the number of parts of each kind.

    The notes in ``before`` come first: earlier segments are not made again.
    """
    rest = max(new, key=lambda note: note.count)  # of several with the same count, the first
    rest = before[0] if before else rest
    for note in new:
        if note.dtype != rest.dtype:
            number = format_count(note.count, "part" if note.role.startswith(".") else "image")
            message = f"it decodes to {note.dtype}, like {number}, but {rest.key} to {rest.dtype}"
            text = f"{message}, which one cache cannot hold"
            failure = Failure.of(note.key, ObjectError("cache.schema", text, where=note.key))
            yield note.count, failure


def _looked_at(job: Job, root: Store, segment: SegmentDocument, split: str) -> tuple[FormNote, ...]:
    """Read the first part of each role in a split of an earlier segment, from its shard."""
    facts = segment.splits.get(split)
    if facts is None or not facts.samples:
        return ()
    rows = min(facts.samples, _LOOKED_AT)
    batches = read_rows(root, segment.file("rows"), facts.first_row, rows)
    rules = image_rules(job.dataset, job.cluster)
    decoders = rules.decoders
    tally, seen = FormTally(decoders), set[str]()
    format_ = shard_format(*segment.shape.use)
    for sample in read_index(batches):
        new = [
            part
            for part in sample.parts
            if decoders.decodes(part.ext) and note_role(part.ext, decoders) not in seen
        ]
        if not new:
            continue
        key = layout.shard_key(segment.id, split, sample.shard)
        with format_.open(root, key) as reader:
            for ext, data in reader.read(sample, new).items():
                seen.add(note_role(ext, decoders))
                named = f"{sample.key}.{ext}"
                if form := check_decodable(ext, data, "none", where=named, rules=rules):
                    tally.add(ext, named, form)
    return tally.notes()
