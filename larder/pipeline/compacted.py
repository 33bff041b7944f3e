"""Whether a version is already what a first build would make: then there is nothing to compact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from larder.config.models import Dataset
from larder.pipeline.pack import pack
from larder.samples.order import SampleOrder
from larder.store.base import Store
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.publish import read_segment


def is_compact(root: Store, version: VersionDocument, dataset: Dataset) -> bool:
    """Whether the documents of a version say that it is what a first build would make.

    The version has the same inputs. Where they do not say it, as with ``shards.count_min``, a plan
    finds out; see `is_first_build`.
    """
    if len(version.segments) > 1 or dataset.shards.count_min is not None:
        return False
    segment = read_segment(root, version.segments[0].id)
    return segment is not None and _is_whole(version, segment, version.skipped, {})


def is_first_build(
    version: VersionDocument,
    segment: SegmentDocument,
    dataset: Dataset,
    order: SampleOrder,
    bad: int,
    folder: Path,
) -> bool:
    """Whether a version of which no sample has changed is what a first build would make.

    ``segment`` is its first; ``bad`` is the number of samples that are left out as before.
    """
    targets: Mapping[str, int] = {}
    if dataset.shards.count_min is not None:
        options = segment.shape.options
        targets = pack(dataset, order.file, order.samples, folder, options=options).targets
    return len(version.segments) == 1 and _is_whole(version, segment, bad, targets)


def _is_whole(
    version: VersionDocument,
    segment: SegmentDocument,
    bad: int,
    targets: Mapping[str, int],
) -> bool:
    """Whether all that was planned for its only segment is there now, and nothing else."""
    own = [file for file in version.files_of("skipped") if file not in segment.files]
    return (
        not version.omitted
        and not own
        and segment.skipped == bad
        and not any(split.first_shard for split in segment.splits.values())
        and dict(segment.shape.split_bytes) == dict(targets)
    )
