"""Expands the inventory of a run, if the dataset file says that objects are archives or tables.

A run that finds its version does not get here: the inputs digest covers the containers as they are
listed, so nothing is read to find out that nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.config.models import Cluster, Dataset
from larder.failures import SHOWN_FAILURES, Failures
from larder.pipeline.job import storage_of
from larder.pipeline.kept_indexes import kept_indexes
from larder.pipeline.results import BatchReport, RunError
from larder.progress import Progress
from larder.samples.order import ignored_keys
from larder.source.expand.archive_expansion import archive_expansion, archives_to_list
from larder.source.expand.expanded import Expanded, Expansion, expand
from larder.source.expand.row_expansion import row_expansion
from larder.source.inventory import Inventory
from larder.store.base import Readable, Store
from larder.versions import layout

_LOCAL_THREADS = 4
"""More would only take turns reading headers from the page cache."""

_MOST_THREADS = 64
"""So many indexes may be written at the same time: each holds some thousand rows."""


def containers_to_list(dataset: Dataset) -> Callable[[pa.Array], npt.NDArray[np.bool_]] | None:
    """Tells which objects a run needs because of what is in them; None if there are none."""
    if dataset.source.archives != "expand":
        return None
    return archives_to_list(dataset.source.include)


def expand_inventory(
    dataset: Dataset,
    cluster: Cluster,
    source: Readable,
    inventory: Inventory,
    folder: Path,
    *,
    plan_only: bool,
    progress: Progress,
) -> Inventory:
    """The inventory with what is in archives and tables, in place of them.

    With ``plan_only``, nothing may be written to the storage, so indexes of buckets are kept on
    this machine (`larder.pipeline.kept_indexes`). ``run.failed``: containers that cannot be read;
    or names that no object can have, unless ``on_bad_key`` is ``skip``.
    """
    if not dataset.source.expands:
        return inventory
    own = storage_of(dataset, cluster, layout.derived_prefix())
    expansions = _expansions(
        dataset,
        source,
        own,
        None if plan_only else own,
        progress,
        kept_indexes(dataset, source),
    )
    local = source.features.local_path
    found = expand(
        source,
        inventory,
        expansions,
        dataset.source.include,
        dataset.source.exclude,
        folder,
        concurrency=_LOCAL_THREADS if local else min(cluster.copy_.concurrency, _MOST_THREADS),
        progress=progress,
    )
    return _checked(found, dataset, inventory)


def _expansions(
    dataset: Dataset,
    source: Readable,
    own: Store,
    put: Store | None,
    progress: Progress,
    kept: Store | None,
) -> list[Expansion]:
    found = []
    if dataset.source.archives == "expand":
        found.append(archive_expansion(source, own, put, progress, kept))
    if dataset.source.rows is not None:
        labels, rows = dataset.labels, dataset.source.rows
        column = labels.column if labels and labels.source == "column" else None
        others = set(ignored_keys(dataset))
        found.append(row_expansion(rows, others, column, source, own, put, progress, kept))
    return found


def _checked(found: Expanded, dataset: Dataset, inventory: Inventory) -> Inventory:
    if found.damaged.count:
        hint = "nothing was published; replace or exclude them"
        raise _failed(found.damaged, hint)
    if found.bad.count and dataset.on_bad_key == "fail":
        raise _failed(found.bad, "rename or exclude them, or set on_bad_key: skip")
    if found.inventory is None:
        raise _failed(found.bad, "nothing else is in the source")
    shown = (*inventory.failures, *found.bad.shown)[:SHOWN_FAILURES]
    return replace(found.inventory, unlisted=inventory.unlisted + found.bad.count, failures=shown)


def _failed(failures: Failures, hint: str) -> RunError:
    return RunError("expand", BatchReport.of(failures), hint)
