"""Expands the inventory of a run, if the dataset file says that objects are archives or tables.

A run that finds its version never expands: the inputs digest covers the containers as listed, so an
unchanged source is recognised without reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.errors import SHOWN_FAILURES, Failures, LarderError
from larder.jobs.results import BatchReport, RunError
from larder.manifest.digest import canonical_json, sha256_hex
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import OBJECTS
from larder.progress import Progress
from larder.samples.matching import Matching
from larder.samples.naming import bad_key_hint
from larder.samples.parts import Joins, named_objects
from larder.samples.sample_order import ignored_keys
from larder.segments.stores import storage_of
from larder.source.expand.annotations import Indexed, index_annotations
from larder.source.expand.archives import archive_expansion
from larder.source.expand.containers import Indexes
from larder.source.expand.expanded import Expanded, Expansion, expand
from larder.source.expand.table_rows import row_expansion
from larder.source.inventory import Inventory
from larder.store import open_store
from larder.store.base import ObjectInfo, Readable, Store
from larder.store.download import cache_directory
from larder.store.permissions import is_remote
from larder.versions import layout

_LOCAL_THREADS = 4
"""Threads for local files; more would only take turns reading headers from the page cache."""

_MOST_THREADS = 64
"""Maximum number of indexes written at once: each holds some thousand rows."""


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
    """Return the inventory with the contents of archives and tables in place of them.

    With ``plan_only``, nothing may be written to the storage, so indexes of buckets are kept on
    this machine. ``run.failed``: some containers or their names are bad, and are not to be skipped.
    """
    if not dataset.source.expands:
        return inventory
    indexes = Indexes(
        storage_of(dataset, cluster, layout.DERIVED_PREFIX),
        plan_only,
        kept_indexes(dataset, source),
        progress,
    )
    local = source.features.local_path
    expanded = expand(
        source,
        inventory,
        _expansions(dataset, source, indexes),
        dataset.source.include,
        dataset.source.exclude,
        folder,
        concurrency=_LOCAL_THREADS if local else min(cluster.copy_.concurrency, _MOST_THREADS),
        progress=progress,
    )
    return _checked(expanded, dataset, inventory)


def _expansions(dataset: Dataset, source: Readable, indexes: Indexes) -> list[Expansion]:
    expansions = []
    if dataset.source.archives == "expand":
        expansions.append(archive_expansion(source, indexes))
    if dataset.source.rows is not None:
        labels, rows = dataset.labels, dataset.source.rows
        column = labels.column if labels and labels.source == "column" else None
        others = set(ignored_keys(dataset))
        expansions.append(row_expansion(rows, others, column, source, indexes))
    return expansions


def _checked(expanded: Expanded, dataset: Dataset, inventory: Inventory) -> Inventory:
    if expanded.damaged.count:
        hint = "nothing was published; replace or exclude them"
        raise _failed(expanded.damaged, hint)
    if expanded.bad.count and dataset.on_bad_key == "fail":
        raise _failed(expanded.bad, bad_key_hint(expanded.bad.shown))
    if expanded.empty.count and dataset.on_bad_sample == "fail":
        hint = "exclude them with source.rows.exclude, or set on_bad_sample: skip"
        raise _failed(expanded.empty, hint)
    if expanded.inventory is None:
        left_out = expanded.bad if expanded.bad.count else expanded.empty
        raise _failed(left_out, "nothing else is in the source")
    shown = (*inventory.failures, *expanded.bad.shown)[:SHOWN_FAILURES]
    unlisted = inventory.unlisted + expanded.bad.count
    return replace(expanded.inventory, unlisted=unlisted, failures=shown, empty=expanded.empty)


def _failed(failures: Failures, hint: str) -> RunError:
    return RunError("expand", BatchReport.of(failures), hint)


FOLDER = "indexes"
"""The folder below the directory of downloaded caches."""


def kept_indexes(dataset: Dataset, source: Readable) -> Store | None:
    """Open the local store for the indexes of a bucket; writes to it may fail.

    None for a user without a home directory, as in some containers.
    """
    if not is_remote(source):
        return None
    of = sha256_hex(canonical_json([source.url, dataset.source.access.endpoint]))[:32]
    try:
        return open_store(str(cache_directory() / FOLDER / of))
    except (RuntimeError, LarderError):
        return None


def read_annotations(
    dataset: Dataset,
    cluster: Cluster,
    source: Readable,
    files: Sequence[ObjectInfo],
    folder: Path,
    *,
    plan_only: bool,
) -> tuple[Indexed, ...]:
    """Return the entries of the annotation files; each file is read once for all runs."""
    options, labels = dataset.samples.annotations, dataset.labels
    if options is None:
        return ()
    column = labels.column if labels and labels.source == "column" else None
    indexes = Indexes(storage_of(dataset, cluster, layout.DERIVED_PREFIX), plan_only)
    return tuple(
        index_annotations(source, info, options, column, indexes, folder) for info in files
    )


def match_annotations(
    dataset: Dataset, inventory: Inventory, indexed: Sequence[Indexed], folder: Path
) -> Matching | None:
    """Find the samples of the entries; None if there are no annotation files."""
    if dataset.samples.annotations is None:
        return None
    join = dataset.samples.join
    objects = read_manifest(inventory.file.path, OBJECTS, columns=["key", "size_bytes"])
    named = named_objects(objects, ignored_keys(dataset), Joins(join) if join else None)

    def entries() -> Iterator[pa.RecordBatch]:
        for each in indexed:
            yield from each.entries()

    return Matching(entries, named, folder)
