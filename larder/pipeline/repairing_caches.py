"""Makes damaged cache files again, from the shards of their segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from larder.cache.fields import Kind
from larder.cache.records import Samples, build_samples
from larder.config.decoders import DecoderUse
from larder.config.formats import FormatUse
from larder.config.images import MAX_PIXELS
from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.limits import decoding_budget
from larder.manifest.schemas import SAMPLES
from larder.pipeline.cache import reserve_bytes, workshop_place
from larder.pipeline.job import ManifestRef
from larder.pipeline.manifests import read_ref
from larder.pipeline.repairing_files import Recorded, Repair, copy_right, refused
from larder.pipeline.verifying_job import VerifyJob, open_verified
from larder.progress import NullProgress, Progress
from larder.samples.decoders import Decoders, resolved
from larder.samples.indexed import SampleReader
from larder.shards.formats import shard_format
from larder.store.base import Store
from larder.temporary import workshop
from larder.versions import layout
from larder.versions.documents import CacheFile, Shape
from larder.versions.publish import own_file_errors

__all__ = ["CacheRepair", "repair_cache"]

STAGE = "repair"


@dataclass(frozen=True, slots=True)
class CacheRepair:
    """A damaged cache file.

    Attributes:
        file: What was published of it.
        kind: ``encoded`` or ``decoded``.
        decoders: What decodes parts that are not images.
        shape: The shape of its segment's shards; None if segment.json is damaged.
        samples: The samples manifest of its segment; None if that is damaged.
        first_row: Row of its first sample in that.
        twins: By path, files that have its right content.
        trial: Whether nothing is written.
    """

    file: CacheFile
    kind: Kind
    decoders: tuple[DecoderUse, ...]
    shape: Shape | None
    samples: ManifestRef | None
    first_row: int
    twins: Mapping[str, tuple[str, ...]]
    trial: bool


def repair_cache(
    job: VerifyJob, batch: CacheRepair, *, progress: Progress, concurrent_batches: int = 1
) -> tuple[Repair, ...]:
    """Build a cache file again, and replace the damaged one if the bytes are those of before.

    Args:
        job: The verification.
        batch: The cache file.
        progress: Reports progress of stage ``repair``.
        concurrent_batches: Number of files built concurrently, which share ``copy.memory_bytes``.

    Returns:
        What became of it.

    Raises:
        StoreError: A store refuses access, or no space is left to build on.
        RetryableError: The storage kept failing.
    """
    root = open_verified(job)
    file = batch.file
    recorded = Recorded(file.path, file.bytes, file.sha256)
    twin = copy_right(root, recorded, batch.twins.get(file.path, ()), trial=batch.trial)
    if twin:
        repair = Repair(file.path, True, f"copied from {twin}")
    elif batch.samples is None or batch.shape is None:
        repair = Repair(file.path, False, "the index of its segment has to be repaired first")
    else:
        repair = _built(job, root, batch, batch.samples, batch.shape.use)
    progress.advance(STAGE, objects=1, bytes=file.bytes)
    return (repair,)


def _built(
    job: VerifyJob,
    root: Store,
    batch: CacheRepair,
    samples: ManifestRef,
    use: FormatUse,
) -> Repair:
    file = batch.file

    def rows() -> Iterator[pa.RecordBatch]:
        return read_ref(root, samples, SAMPLES, first_row=batch.first_row, rows=file.records)

    def open_shard(name: str) -> SampleReader:
        key = layout.shard_key(file.segment, file.split, name)
        return shard_format(*use).open(root, key)

    with workshop(workshop_place(root)) as folder:
        path = folder / "data.mdb"
        try:
            if resolved(batch.decoders) != batch.decoders:
                return Repair(file.path, False, "its decoders have other versions here")
            facts = build_samples(
                Samples(rows=rows, open_shard=open_shard),
                batch.kind,
                path,
                limit_bytes=None,
                reserve_bytes=reserve_bytes(folder),
                budget=decoding_budget(job.cluster.copy_.memory),
                max_pixels=max(MAX_PIXELS, job.dataset.images.max_pixels),
                decoders=Decoders(batch.decoders),
                progress=NullProgress(),
            )
        except (StoreError, RetryableError):
            raise
        except LarderError as error:
            return Repair(file.path, False, f"it cannot be built again: {error}")
        if (facts.bytes, facts.sha256) != (file.bytes, file.sha256):
            return Repair(file.path, False, _difference(facts.digest == file.digest))
        if not batch.trial:
            try:
                with own_file_errors():
                    root.upload(file.path, path)
            except ObjectError as error:
                return refused(file.path, error)
    return Repair(file.path, True, "built again from its shards")


def _difference(same_records: bool) -> str:
    if same_records:
        return (
            "built again, it has the same records but other bytes: those of LMDB depend on the page"
            " size of the machine; repair it on a machine like the one that built it"
        )
    return (
        "built again, it has other records than were published: decoded images depend on the"
        " version of Pillow; repair it with the packages that built it, or restore the file"
    )
