"""What a card says of a version, from its documents and its index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from larder.readers.access import Access
from larder.readers.numbers import Array
from larder.readers.split import SplitSamples
from larder.store.base import Store
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_segment, read_version
from larder.versions.tags import TAG, read_tag

BINS_PER_DOUBLING = 4
"""Of the histogram of sizes."""

_BINS = 64 * BINS_PER_DOUBLING


@dataclass(frozen=True, slots=True)
class StorageAccess(Access):
    """A dataset's root that is open already, with the credentials that the cluster file names."""

    opened: Store | None = None

    def store(self) -> Store:
        assert self.opened is not None, "it was opened"
        return self.opened


@dataclass(frozen=True, slots=True)
class Spread:
    """The smallest and the largest of some sizes, in bytes, and what they add up to."""

    count: int
    smallest: int
    largest: int
    total: int

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @staticmethod
    def of(sizes: Sequence[int] | Array) -> Spread:
        array = np.asarray(sizes, np.int64)
        if not len(array):
            return Spread(0, 0, 0, 0)
        return Spread(len(array), int(array.min()), int(array.max()), int(array.sum()))

    def __add__(self, other: Spread) -> Spread:
        if not (self.count and other.count):
            return self if self.count else other
        return Spread(
            self.count + other.count,
            min(self.smallest, other.smallest),
            max(self.largest, other.largest),
            self.total + other.total,
        )


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """What is counted in a split.

    Attributes:
        sizes: Of the samples, as they are stored.
        shards: Sizes of the shards.
        histogram: Number of samples by size: `BINS_PER_DOUBLING` bins from each power of two to the
            next, beginning with one byte.
        class_samples: Number of samples of each class; the last item counts those without a class.
    """

    sizes: Spread
    shards: Spread
    histogram: Array
    class_samples: Array


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the previous version.

    Attributes:
        previous: ID of the previous version; empty if there was none.
        samples: By split, the number of samples of the previous version.
        kept_segments: Number of segments that both versions have.
        kept_samples: Number of samples in these.
        new_samples: Number of samples in the other segments of this version.
        classes_added: Classes that the previous version did not have.
        classes_removed: Classes that only the previous version has.
    """

    previous: str
    samples: Mapping[str, int]
    kept_segments: int
    kept_samples: int
    new_samples: int
    classes_added: Sequence[str]
    classes_removed: Sequence[str]


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Everything that is counted; ``changes`` is None if the previous version is not known."""

    version: VersionDocument
    splits: Mapping[str, SplitFigures]
    changes: Changes | None


def samples_by_split(
    store: Store, version: VersionDocument, folder: Path
) -> dict[str, SplitSamples]:
    """The samples of a version; parts of the index may be downloaded to a folder."""
    access = StorageAccess(store.url, folder, opened=store)
    return {split: SplitSamples(version, split, access) for split in version.splits}


def read_facts(
    store: Store, version: VersionDocument, samples: Mapping[str, SplitSamples]
) -> CardFacts:
    """Read the whole index of a version, in lots, and no shard."""
    splits = {split: _figures(version, each) for split, each in samples.items()}
    return CardFacts(version, splits, _changes(store, version))


def _figures(version: VersionDocument, samples: SplitSamples) -> SplitFigures:
    sizes = Spread.of([])
    histogram = np.zeros(_BINS, np.int64)
    class_samples = np.zeros(len(version.classes) + 1, np.int64)
    for stored, labels in samples.measures():
        sizes += Spread.of(stored)
        bins = np.floor(np.log2(np.maximum(stored, 1)) * BINS_PER_DOUBLING).astype(np.int64)
        histogram += np.bincount(bins, minlength=_BINS)
        known = np.where((labels >= 0) & (labels < len(version.classes)), labels, -1)
        class_samples += np.bincount(known % len(class_samples), minlength=len(class_samples))
    shards = Spread.of([file.bytes for _, file in samples.shard_files()])
    return SplitFigures(sizes, shards, histogram, class_samples)


def _changes(store: Store, version: VersionDocument) -> Changes | None:
    previous_id = _previous(store, version.id)
    if not previous_id:
        return None
    previous = read_version(store, previous_id)
    if previous is None:
        return None
    before = {use.id for use in previous.segments}
    kept = [use.id for use in version.segments if use.id in before]
    kept_samples = sum(_live_samples(store, version, kept))
    samples = sum(split.samples for split in version.splits.values())
    return Changes(
        previous=previous_id,
        samples={name: split.samples for name, split in previous.splits.items()},
        kept_segments=len(kept),
        kept_samples=kept_samples,
        new_samples=samples - kept_samples,
        classes_added=sorted(set(version.classes) - set(previous.classes)),
        classes_removed=sorted(set(previous.classes) - set(version.classes)),
    )


def _previous(store: Store, version: str) -> str:
    """The version that the tag named before it named this one; empty if it named none."""
    tag = read_tag(store, TAG)
    named = [*(entry.version for entry in tag.history), tag.version] if tag else []
    place = named.index(version) if version in named else 0
    return named[place - 1] if place else ""


def _live_samples(store: Store, version: VersionDocument, segments: Sequence[str]) -> Iterator[int]:
    omitted = {use.id: sum(rows.count for rows in use.omitted.values()) for use in version.segments}
    for id_ in segments:
        if document := read_segment(store, id_):
            yield sum(split.samples for split in document.splits.values()) - omitted[id_]
