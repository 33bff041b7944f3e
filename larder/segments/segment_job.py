"""The job: the input of every step, small enough to be sent to a task on any machine.

Manifests are passed between steps by reference: their key below the dataset's root, and their
sha256.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.shape import FormatUse
from larder.jobs.manifests import put_named
from larder.jobs.results import Totals
from larder.manifest.manifest_files import ManifestFile
from larder.manifest.sealed import StoredFile
from larder.segments.stores import root_url, source_of, storage_of
from larder.store.base import Readable, Store
from larder.versions import layout
from larder.versions.documents import SegmentDocument, SegmentUse, Shape
from larder.versions.leases import Claim
from larder.versions.publish import Conditions

if TYPE_CHECKING:
    from larder.copy.copy_job import CopyJob


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment to build, with its planned shards; ``complete``: it existed already."""

    id: str
    shape: Shape
    complete: bool
    splits: Mapping[str, Totals] = field(default_factory=dict)

    @property
    def shards(self) -> Totals:
        return sum(self.splits.values(), Totals())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The common input of all steps of a run, and of the steps that a repair takes again.

    ``inputs`` is the inputs digest. ``files`` are files of the version that are written already:
    its omitted rows, the bad samples that earlier versions left out, and the inventory. ``skipped``
    counts these bad samples, and keys that no sample can have.

    ``new`` is the segment to build, if any. Its ``manifests`` are ``order`` (SAMPLE_ORDER) and
    ``shards`` (SHARD_PLAN), none if shards are only made again, and ``copies`` (COPIES) once the
    objects are in the mirror; ``due`` is the copy that is missing there. ``kept`` are the segments
    that the version shares with the previous one, and ``uses`` what it uses of them. ``formats``
    has the format of each segment of the previous version, and ``weaker`` are the segments whose
    images were checked more weakly than now.

    ``published``: the version exists, so that only the inputs have to be recorded. ``expected`` is
    the version that the tag named before the listing. ``claim`` keeps the segments that this run
    uses from being cleaned until it ends; None if the run changes nothing.
    """

    dataset: Dataset
    cluster: Cluster
    inputs: str
    version: str
    classes: tuple[str, ...]
    files: tuple[StoredFile, ...] = ()
    skipped: int = 0
    new: PlannedSegment | None = None
    manifests: Mapping[str, StoredFile] = field(default_factory=dict)
    due: CopyJob | None = None
    kept: tuple[SegmentDocument, ...] = ()
    uses: tuple[SegmentUse, ...] = ()
    formats: Mapping[str, FormatUse] = field(default_factory=dict)
    weaker: tuple[str, ...] = ()
    published: bool = False
    expected: str | None = None
    conditions: Conditions = field(default=Conditions(if_absent=False, if_match=False))
    claim: Claim | None = None

    @property
    def segment(self) -> str:
        return self._new.id

    @property
    def shape(self) -> Shape:
        return self._new.shape

    @property
    def _new(self) -> PlannedSegment:
        assert self.new is not None, "there is no segment to build"
        return self.new

    @property
    def mirrored(self) -> bool:
        """Whether objects are read from a mirror; ``auto`` was decided when the job began."""
        return self.dataset.mirror is True

    @property
    def root(self) -> str:
        return root_url(self.dataset.name, self.cluster)


def open_root(job: Job) -> Store:
    return storage_of(job.dataset, job.cluster)


def open_source(job: Job) -> Readable:
    return source_of(job.dataset, job.cluster)


def put_work(store: Store, segment: str, role: str, file: ManifestFile) -> StoredFile:
    """Write a manifest into the work folder of the segment that is being built."""
    key = f"{layout.work_prefix(segment)}{role}-{file.sha256[:16]}.parquet"
    return put_named(store, key, file, role)
