"""Facts about a version for its card, from its documents and its index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from larder.readers.access import DatasetAccess
from larder.readers.numbers import Array
from larder.readers.split import SplitSamples
from larder.store.base import Store
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_segment, read_version
from larder.versions.runs import RunRecord, read_runs

BINS_PER_DOUBLING = 4
"""Bins in the histogram of sizes for each doubling."""

_BINS = 64 * BINS_PER_DOUBLING


@dataclass(frozen=True, slots=True)
class StorageAccess(DatasetAccess):
    """A dataset's root that is open already, with the credentials that the cluster file names."""

    opened: Store | None = None

    def store(self) -> Store:
        assert self.opened is not None, "it was opened"
        return self.opened


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """Figures of a split. Sizes are bytes of samples as stored.

    Attributes:
        histogram: Number of samples by size: `BINS_PER_DOUBLING` bins from each power of two to the
            next, beginning with one byte.
        class_samples: Number of samples by class; the last item counts samples without a class.
    """

    smallest_bytes: int
    mean_bytes: int
    largest_bytes: int
    histogram: Array
    class_samples: Array


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Figures of a version.

    Attributes:
        formats: The formats of its shards.
        run: Record of the run that published the version; None without a record.
        previous: The version that the run compared with; None if it is not known or gone.
        kept_segments: Number of segments that both versions have.
        kept_samples: Number of samples in these segments.
    """

    version: VersionDocument
    splits: Mapping[str, SplitFigures]
    formats: tuple[str, ...]
    run: RunRecord | None
    previous: VersionDocument | None
    kept_segments: int
    kept_samples: int


def samples_by_split(
    store: Store, version: VersionDocument, folder: Path
) -> dict[str, SplitSamples]:
    """Open the samples of a version; parts of the index may be downloaded to a folder."""
    access = StorageAccess(store.url, folder, opened=store)
    return {split: SplitSamples(version, split, access) for split in version.splits}


def read_facts(
    store: Store, version: VersionDocument, samples: Mapping[str, SplitSamples]
) -> CardFacts:
    """Read the whole index of a version, in lots, and no shard."""
    run = next((run for run in read_runs(store, version.id) if run.published), None)
    previous = read_version(store, run.previous) if run and run.previous else None
    before = {use.id for use in previous.segments} if previous else set()
    segments = [(use, read_segment(store, use.id)) for use in version.segments]
    kept = [
        sum(split.samples for split in document.splits.values())
        - sum(rows.count for rows in use.omitted.values())
        for use, document in segments
        if document and use.id in before
    ]
    return CardFacts(
        version,
        {split: _figures(each, len(version.classes)) for split, each in samples.items()},
        tuple(dict.fromkeys(document.shape.format for _, document in segments if document)),
        run,
        previous,
        len(kept),
        sum(kept),
    )


def _figures(samples: SplitSamples, classes: int) -> SplitFigures:
    lots: list[tuple[int, int, int]] = []
    histogram = np.zeros(_BINS, np.int64)
    class_samples = np.zeros(classes + 1, np.int64)
    for stored, labels in samples.measures():
        lots.append((int(stored.min()), int(stored.max()), int(stored.sum())))
        bins = np.floor(np.log2(np.maximum(stored, 1)) * BINS_PER_DOUBLING).astype(np.int64)
        histogram += np.bincount(bins, minlength=_BINS)
        places = np.where((labels >= 0) & (labels < classes), labels, classes)
        class_samples += np.bincount(places, minlength=classes + 1)
    smallest, largest, total = zip(*lots, strict=True) if lots else ((0,), (0,), (0,))
    mean = round(sum(total) / max(1, len(samples)))
    return SplitFigures(min(smallest), mean, max(largest), histogram, class_samples)
