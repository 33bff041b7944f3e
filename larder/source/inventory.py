"""What is known of the objects at a source at one time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.errors import Failure
from larder.manifest.files import ManifestFile
from larder.manifest.sort import SortedFile
from larder.source.reports import Reported

SHOWN_KEYS = 5
"""Maximum number of excluded keys kept by name."""

IDENTITY = ["key", "size_bytes", "etag"]
"""The columns of OBJECTS that the digest of an inventory covers."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Objects that were listed but not included: their number, and their first keys."""

    count: int = 0
    keys: tuple[str, ...] = ()

    def and_more(self, keys: Sequence[str], count: int) -> LeftOut:
        """These objects and ``count`` further ones, of which ``keys`` are the first."""
        room = SHOWN_KEYS - len(self.keys)
        return LeftOut(self.count + count, (*self.keys, *keys[:room]))


@dataclass(frozen=True, slots=True)
class InContainers:
    """The archives and tables of a source, how many of them had no index and were read, and how
    many objects are in them, included or not.
    """

    containers: int
    read: int
    objects: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """The objects at a source at one time.

    Attributes:
        listed: Number of objects in the listing, included or not.
        digest: sha256 hex over the ordered keys, sizes and etags, without times.
        not_included: Objects that match no glob of ``source.include``.
        excluded: Objects that match one, but also a glob of ``source.exclude``.
        classes: The number of included objects and their bytes, for every storage class but the
            standard one.
        archived: Manifest of those that cannot be read before they are restored; None if there are
            none. See `larder.source.archived`.
        report: The report that they come from; None: the source was listed.
        unlisted: Number of files and directories that could not be listed.
        failures: The first of them.
        labels: The classes that columns of tables give, as rows of
            `larder.source.expand.expanded.LABELS` in any order; None if there are none.
    """

    file: ManifestFile
    objects: int
    bytes: int
    listed: int
    digest: str
    not_included: LeftOut
    excluded: LeftOut
    report: Reported | None = None
    classes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    archived: ManifestFile | None = None
    unlisted: int = 0
    failures: tuple[Failure, ...] = ()
    inside: InContainers | None = None
    labels: ManifestFile | None = None

    @property
    def considered(self) -> int:
        """Number of objects that globs were applied to."""
        inside = self.inside.objects - self.inside.containers if self.inside else 0
        return self.listed + inside


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing has found at a source: ``rows`` are the included objects, of schema OBJECTS
    and ordered by key; the other fields are as in `Inventory`.
    """

    objects: int
    bytes: int
    listed: int
    not_included: LeftOut
    excluded: LeftOut
    report: Reported | None
    rows: SortedFile | None = None
    classes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    archived: ManifestFile | None = None


def parted(
    batch: pa.RecordBatch, wanted: npt.NDArray[np.bool_], others: LeftOut
) -> tuple[pa.RecordBatch, LeftOut]:
    if wanted.all():
        return batch, others
    unwanted = batch.column("key").filter(pa.array(~wanted))
    first = unwanted.slice(0, SHOWN_KEYS).to_pylist()
    return batch.filter(pa.array(wanted)), others.and_more(first, len(unwanted))
