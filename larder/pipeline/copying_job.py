"""The job of a copy: what its batches need to know, small enough for a task on any machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from larder.manifest.schemas import OBJECTS
from larder.pipeline.ahead import Route
from larder.pipeline.copies import BATCH_OBJECTS
from larder.pipeline.copy_place import CopyPlace
from larder.pipeline.copying_plan import CopyPlan
from larder.pipeline.copying_record import copy_place, work_key
from larder.pipeline.copying_settings import CopySettings
from larder.pipeline.job import CopyBatch, ManifestRef, put_named
from larder.pipeline.manifests import read_ref
from larder.pipeline.results import Totals


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What the steps of one copy share.

    ``due`` is a manifest of schema OBJECTS: the objects to copy, whose number and size ``copies``
    has. ``adopt``: another engine may have copied some of them already.
    """

    settings: CopySettings
    place: CopyPlace
    due: ManifestRef
    copies: Totals
    adopt: bool = False

    @property
    def route(self) -> Route:
        settings = self.settings
        return Route(
            settings.source,
            settings.storage,
            settings.open_root().url,
            self.place.objects,
            settings.limits,
            self.copies,
        )


def begin_copy(plan: CopyPlan) -> CopyJob:
    """Put the list of what is due into the storage, where every task finds it."""
    root, file = plan.known.root, plan.due
    due = put_named(root, work_key("due", file.sha256), file)
    return CopyJob(plan.located, copy_place(plan.known.origin), due, plan.copies)


def copy_batches(job: CopyJob) -> list[CopyBatch]:
    """The copies to make: ranges of rows of the list, of about ``runner.batch_bytes``."""
    rows = read_ref(job.settings.open_root(), job.due, OBJECTS, columns=["size_bytes"])
    return list(cut_batches(rows, job.settings.runner.batch_bytes))


def cut_batches(rows: Iterable[pa.RecordBatch], batch_bytes: int) -> Iterator[CopyBatch]:
    """Cut rows into batches; one ends before the row that makes it too large.

    The rows have a column ``size_bytes``. A single row may be larger than ``batch_bytes``.
    """
    first, sizes = 0, np.zeros(0, np.int64)
    for batch in rows:
        sizes = np.append(sizes, batch.column("size_bytes").to_numpy())
        while (count := _fitting(sizes, batch_bytes)) < len(sizes):
            yield CopyBatch(first, count, count, int(sizes[:count].sum()))
            first, sizes = first + count, sizes[count:]
    if len(sizes):
        yield CopyBatch(first, len(sizes), len(sizes), int(sizes.sum()))


def _fitting(sizes: np.typing.NDArray[np.int64], batch_bytes: int) -> int:
    """How many of the first rows make a batch."""
    count = int(np.searchsorted(np.cumsum(sizes), batch_bytes, side="right"))
    return min(max(1, count), BATCH_OBJECTS)
