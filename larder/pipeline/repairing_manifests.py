"""Makes damaged manifests again: from receipts of shards, from the source, or from each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from larder.disk import sha256_file
from larder.errors import LarderError, RetryableError, StoreError
from larder.manifest.schemas import SHARDS
from larder.pipeline.class_numbers import class_numbers
from larder.pipeline.expanding import expand_inventory
from larder.pipeline.job import ManifestRef, scratch, source_of
from larder.pipeline.listed import listed_shards
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.omitted_again import find_lost, omitted_again
from larder.pipeline.repairing_files import Recorded, Repair, copy_right
from larder.pipeline.repairing_indexes import SegmentManifests
from larder.pipeline.source import take_source
from larder.pipeline.verifying_job import VerifyJob
from larder.progress import NullProgress
from larder.shards.formats import shard_format
from larder.shards.formats.base import SplitIndexed
from larder.shards.indexes.splits import Split, SplitShard
from larder.store.base import Store
from larder.transfer.unlisted import Unlisted
from larder.versions import layout
from larder.versions.documents import FileFacts, VersionDocument
from larder.versions.omitted import encode_omitted, read_omitted
from larder.versions.publish import own_file_errors, read_segment

__all__ = ["repair_manifest"]

_OF_SEGMENT = ("samples", "shards", "indexes", "skipped")


def repair_manifest(
    job: VerifyJob,
    root: Store,
    version: VersionDocument,
    file: FileFacts,
    twins: Mapping[str, tuple[str, ...]],
    *,
    trial: bool,
) -> Repair:
    """Make a file again that version.json names, if its bytes are those of before.

    Args:
        job: The verification.
        root: The dataset's root.
        version: The version.
        file: What was published of the file.
        twins: By path, files that have its right content.
        trial: Whether nothing is written.
    """
    recorded = Recorded(file.path, file.bytes, file.sha256)
    twin = copy_right(root, recorded, twins.get(file.path, ()), trial=trial)
    if twin:
        return Repair(file.path, True, f"copied from {twin}")
    made: list[tuple[str, Path]] = []
    why: list[str] = []
    with scratch() as folder:
        try:
            for source, path in _made(job, root, version, file, folder, why):
                made.append((source, path))
                if (path.stat().st_size, sha256_file(path)) == (file.bytes, file.sha256):
                    break
            else:
                return Repair(file.path, False, _refusal(root, version, file, made, why))
        except (StoreError, RetryableError):
            raise
        except LarderError as error:
            return Repair(file.path, False, f"it cannot be made again: {error}; {_hint(version)}")
        source, path = made[-1]
        if not trial:
            with own_file_errors():
                root.upload(file.path, path)
    return Repair(file.path, True, f"made again from {source}")


def _made(
    job: VerifyJob,
    root: Store,
    version: VersionDocument,
    file: FileFacts,
    folder: Path,
    why: list[str],
) -> Iterator[tuple[str, Path]]:
    """What it may be made from, and the file that this gives."""
    own = file.path.startswith(layout.version_prefix(version.id))
    if file.role == "objects":
        yield "the listing of the source", _inventory(job, folder)
    elif file.role == "classes":
        path = folder / "classes.json"
        path.write_bytes(class_numbers(version))
        yield "version.json", path
    elif file.role == "readers":
        for path in _split_index(root, version, file, folder):
            yield "the manifests of shards", path
    elif file.role == "list":
        yield "the manifests of shards", _list(root, version, file, folder)
    elif file.role == "omitted":
        for path in _omitted(root, version, folder):
            yield "the segments and the inventory", path
    elif file.role in _OF_SEGMENT and not own:
        segment = SegmentManifests(job, root, version, file.path.split("/")[1], why)
        yield from segment.made(file.role, folder)


def _inventory(job: VerifyJob, folder: Path) -> Path:
    dataset, cluster, progress = job.dataset, job.cluster, NullProgress()
    unlisted = Unlisted(dataset.source.include, dataset.source.exclude)
    source = source_of(dataset, cluster, unlisted=unlisted)
    found = take_source(dataset, cluster, source, unlisted, folder, progress)
    found = expand_inventory(
        dataset, cluster, source, found, folder, plan_only=True, progress=progress
    )
    return found.file.path


def _split_index(
    root: Store, version: VersionDocument, file: FileFacts, folder: Path
) -> Iterator[Path]:
    """An index of a split for other readers, by the format of the last segment."""
    kind, split = file.path.removesuffix(".json").split("/")[-2:]
    document, omitted = read_segment(root, version.segments[-1].id), read_omitted(root, version)
    if document is None:
        return
    format_ = shard_format(*document.shape.use)
    if not isinstance(format_, SplitIndexed):
        return
    shards = [
        SplitShard(
            layout.shard_key(shard.segment, split, shard.files[0].name),
            shard.files[0].bytes,
            shard.samples,
        )
        for manifest in version.files_of("shards")
        for shard in listed_shards(read_ref(root, ManifestRef.of(manifest), SHARDS), omitted)
        if shard.split == split
    ]
    known = Split(version.dataset, split, shards, layout.SPLIT_INDEX_TO_ROOT)
    for index in format_.split_indexes:
        if index.kind == kind:
            path = folder / "index.json"
            path.write_bytes(index.content(known))
            yield path


def _list(root: Store, version: VersionDocument, file: FileFacts, folder: Path) -> Path:
    split, omitted = layout.listed_split(file.path), read_omitted(root, version)
    path = folder / "list.txt"
    with path.open("w", encoding="utf-8", newline="\n") as lines:
        for manifest in version.files_of("shards"):
            rows = read_ref(root, ManifestRef.of(manifest), SHARDS)
            for shard in listed_shards(rows, omitted):
                if shard.split == split:
                    key = layout.shard_key(shard.segment, split, shard.files[0].name)
                    lines.write(f"{key}\n")
    return path


def _omitted(root: Store, version: VersionDocument, folder: Path) -> Iterator[Path]:
    """The file of the omitted rows, which follow from segments and inventory."""
    objects = ManifestRef.of(version.file("objects"))
    segments = [
        found for use in version.segments if (found := read_segment(root, use.id)) is not None
    ]
    lost = [find_lost(root, each, objects, folder) for each in segments]
    for number, omitted in enumerate(omitted_again(root, segments, lost, folder)):
        path = folder / f"{number}.npy"
        path.write_bytes(encode_omitted(omitted)[1] or b"")
        yield path


def _hint(version: VersionDocument) -> str:
    return (
        f"restore it, or delete it and {layout.version_key(version.id)} and prepare the dataset"
        " again, which writes both if the source has not changed"
    )


def _refusal(
    root: Store,
    version: VersionDocument,
    file: FileFacts,
    made: list[tuple[str, Path]],
    why: list[str],
) -> str:
    hint = _hint(version)
    if not made:
        if why:
            return f"it cannot be made again: {why[0]}; {hint}"
        if file.role in _OF_SEGMENT:
            return f"the receipts of its shards are gone; {hint}"
        return f"nothing else has what was in it; {hint}"
    source = made[0][0]
    if file.role == "objects":
        return f"made again from {source}, it differs: the source has changed since; {hint}"
    then, now = _writer_of(root, version, file), _created_by(made[0][1])
    if then and now and then != now:
        return (
            f"made again from {source}, it has other bytes: it was written by {then}, and this is"
            f" {now}; repair it with that version of pyarrow"
        )
    return f"made again from {source}, it has other bytes than were published; {hint}"


def _writer_of(root: Store, version: VersionDocument, file: FileFacts) -> str:
    """What wrote the manifests of this version, by one that is not damaged."""
    for other in version.files:
        if other.path != file.path and other.path.endswith(".parquet"):
            try:
                with fetched(root, ManifestRef.of(other)) as path:
                    return _created_by(path)
            except LarderError:
                continue
    return ""


def _created_by(path: Path) -> str:
    return str(pq.ParquetFile(path).metadata.created_by) if path.suffix == ".parquet" else ""
