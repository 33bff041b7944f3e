"""Expands an inventory: archives and tables are replaced with their members and rows.

Memory does not depend on the number of objects: each index is read as a stream, and all rows are
sorted by key in a file. Rows with equal keys are distinguished by their place. Within one archive,
the last member of a name counts, as in tar; other equal keys are bad keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.budgets import map_ahead
from larder.errors import ConfigError, Failure, Failures, ObjectError
from larder.manifest.manifest_files import ManifestWriter, read_manifest
from larder.manifest.query import Stream
from larder.manifest.schemas import OBJECTS, columns, table
from larder.manifest.sort import sort
from larder.progress import Progress
from larder.samples.arrow_columns import Flags, column_flags, column_texts
from larder.samples.naming import LEFT_BY_MACOS, is_left_by_macos
from larder.source.expand.containers import INDEX, objects_in
from larder.source.expand.row_values import NO_PARTS
from larder.source.inventory import InContainers, Inventory, LeftOut, parted, with_contents
from larder.source.selection import KeyRule
from larder.store.base import ObjectInfo, Readable

_PLACED = OBJECTS.append(pa.field("place", pa.int64(), nullable=False)).append(
    *columns(container="int64")
)
"""OBJECTS with the place in the container and its number: -1 without a container, and less than
-1 if equal names in the container are bad keys.
"""


class Container(NamedTuple):
    """An expanded object.

    Attributes:
        end: The end of the etags of contained objects.
        last_counts: Whether the last of several entries with a name counts; otherwise they are bad
            keys.
        filtered: Whether globs of ``include`` apply to contained objects.
        read: Whether the container was read for lack of an index.
    """

    info: ObjectInfo
    end: str
    last_counts: bool
    filtered: bool
    read: bool


class Expansion(NamedTuple):
    """The expansion of a kind of objects.

    Attributes:
        indexed: Writes the index of an object to a local file, reading with threads of an executor.
        refused: Returns the reason why the object of a key cannot be expanded, as a clause; None if
            it can.
        exclude: Globs for contained objects, in place of the source's globs.
    """

    matches: Callable[[pa.Array], Flags]
    indexed: Callable[[ObjectInfo, Path, Executor], Container]
    refused: Callable[[str], str | None]
    exclude: Sequence[str] | None = None


class Expanded(NamedTuple):
    """The result of an expansion.

    Attributes:
        inventory: None if nothing is left.
        bad: Unsafe names, links, duplicate keys, and refused containers.
        empty: Rows without a part.
        damaged: Containers that cannot be read.
    """

    inventory: Inventory | None
    bad: Failures
    empty: Failures
    damaged: Failures


LABELS = table(key="string", class_name="string")
"""Objects whose sample gets a class from a column of its table, one row each."""


def expand(
    source: Readable,
    inventory: Inventory,
    expansions: Sequence[Expansion],
    include: Sequence[str],
    exclude: Sequence[str],
    folder: Path,
    *,
    concurrency: int,
    progress: Progress,
) -> Expanded:
    """Expand an inventory of all containers, ``concurrency`` of them at the same time.

    The first matching kind counts. A glob of ``include`` that matches an archive includes all its
    members. ``config.empty_source`` if there are neither objects nor failures.
    """
    progress.start("expand")
    with ExitStack() as stack:
        pools = [_pool(stack, concurrency, name) for name in ("expand", "expand-read")]
        labels = stack.enter_context(ManifestWriter(folder / "row-labels.parquet", LABELS))
        expanding = _Expanding(
            expansions, KeyRule(include), KeyRule(exclude), folder, pools, labels
        )
        placed = Stream(_PLACED, expanding.rows(inventory))
        ordered = stack.enter_context(
            closing(sort(placed, ("key", "place"), ties=("etag",), work_dir=folder))
        )
        rows = expanding.unique(ordered)
        expanded: Inventory | None = None
        try:
            expanded = with_contents(inventory, rows, folder / "expanded.parquet", source.url)
        except ConfigError as error:
            problems = expanding.damaged, expanding.bad, expanding.empty
            if error.code != "config.empty_source" or not any(each.count for each in problems):
                raise
    progress.finish("expand")
    if expanded is not None:
        expanded = replace(
            expanded,
            not_included=expanding.not_included,
            excluded=expanding.excluded,
            inside=InContainers(expanding.containers, expanding.read, expanding.objects),
            labels=labels.file if labels.file.rows else None,
        )
    return Expanded(expanded, expanding.bad, expanding.empty, expanding.damaged)


def _pool(stack: ExitStack, threads: int, name: str) -> Executor:
    """Make threads that end with the stack, without starting queued work."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    return pool


@dataclass
class _Expanding:
    """Replaces containers with their contained objects, and counts."""

    _expansions: Sequence[Expansion]
    _is_included: KeyRule
    _is_excluded: KeyRule
    _folder: Path
    _pools: Sequence[Executor]
    _labels: ManifestWriter
    containers: int = 0
    read: int = 0
    objects: int = 0
    bad: Failures = field(default_factory=Failures)
    empty: Failures = field(default_factory=Failures)
    damaged: Failures = field(default_factory=Failures)
    not_included: LeftOut = field(default_factory=LeftOut)
    excluded: LeftOut = field(default_factory=LeftOut)
    _numbers: Iterator[int] = field(default_factory=count)

    def rows(self, inventory: Inventory) -> Iterator[pa.RecordBatch]:
        """Yield rows of `_PLACED`, in any order."""
        self.not_included, self.excluded = inventory.not_included, inventory.excluded
        for batch in read_manifest(inventory.file.path, OBJECTS):
            kinds = self._kinds(batch.column("key"))
            yield _placed(batch.filter(pa.array(kinds < 0)), -1)
            for kind in np.unique(kinds[kinds >= 0]).tolist():
                matched = batch.filter(pa.array(kinds == kind))
                yield from self._contents(self._expansions[kind], matched)

    def _kinds(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        kinds = np.full(len(keys), -1)
        for kind, expansion in reversed(list(enumerate(self._expansions))):
            kinds[expansion.matches(keys)] = kind
        return kinds

    def _contents(self, expansion: Expansion, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        coordinators, readers = self._pools

        def index(info: ObjectInfo) -> tuple[ObjectInfo, Path, Container | ObjectError]:
            path = self._folder / f"index-{next(self._numbers)}.parquet"
            try:
                return info, path, expansion.indexed(info, path, readers)
            except ObjectError as error:
                return info, path, error

        rule = self._is_excluded if expansion.exclude is None else KeyRule(expansion.exclude)
        infos = self._expandable(expansion, batch)
        for info, path, container in map_ahead(coordinators, index, infos, window=64):
            number = self.containers
            self.containers += 1
            if isinstance(container, ObjectError):
                self.damaged.add(Failure(info.key, container.code, str(container)))
                continue
            self.read += container.read
            for rows in self._wanted(container, path, rule):
                yield _placed(rows, number if container.last_counts else -2 - number)
            path.unlink()

    def _expandable(self, expansion: Expansion, batch: pa.RecordBatch) -> Iterator[ObjectInfo]:
        columns = ("key", "size_bytes", "etag", "modified")
        values = [batch.column(name) for name in columns[:3]]
        values.append(batch.column("modified").cast(pa.int64()))
        for info in map(ObjectInfo, *(column.to_pylist() for column in values)):
            left = is_left_by_macos(info.key)
            reason = LEFT_BY_MACOS if left else expansion.refused(info.key)
            if reason is None:
                yield info
            else:
                self.bad.add(Failure(info.key, "config.bad_key", reason))

    def _wanted(
        self, container: Container, path: Path, is_excluded: KeyRule
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted objects of a container, as rows of OBJECTS with their place."""
        prefix = f"{container.info.key}/"
        everything = not container.filtered or bool(
            self._is_included(pa.array([container.info.key]))[0]
        )
        for batch in read_manifest(path, INDEX):
            self.objects += batch.num_rows
            keys = pc.binary_join_element_wise(prefix, batch.column("name"), "")
            wanted = np.full(len(keys), True) if everything else self._is_included(keys)
            batch, self.not_included = parted(
                batch.append_column("key", keys), wanted, self.not_included
            )
            excluded = is_excluded(batch.column("key"))
            batch, self.excluded = parted(batch, ~excluded, self.excluded)
            self._note_problems(batch)
            self._note_labels(batch)
            objects = objects_in(
                [batch.drop_columns(["key"])],
                container.end,
                container.info.modified_us,
                prefix=prefix,
            )
            places = batch.column("offset").filter(batch.column("problem").is_null())
            for rows in objects:
                yield rows.append_column("place", places)

    def _note_labels(self, batch: pa.RecordBatch) -> None:
        if batch.column("label").null_count < batch.num_rows:
            rows = batch.filter(batch.column("label").is_valid())
            columns = [rows.column("key"), rows.column("label")]
            self._labels.append_batch(pa.RecordBatch.from_arrays(columns, schema=LABELS))

    def _note_problems(self, batch: pa.RecordBatch) -> None:
        if batch.column("problem").null_count < batch.num_rows:
            bad = batch.filter(batch.column("problem").is_valid())
            columns = (bad.column(name) for name in ("key", "problem"))
            for key, problem in zip(*map(column_texts, columns), strict=True):
                if problem == NO_PARTS:
                    self.empty.add(Failure(key.rpartition(".")[0], "sample.empty", problem))
                else:
                    self.bad.add(Failure(key, "config.bad_key", problem))

    def unique(self, ordered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of OBJECTS, keeping the last of equal keys."""
        last: pa.RecordBatch | None = None
        for batch in ordered:
            rows = batch if last is None else pa.concat_batches([last, batch])
            last = rows.slice(rows.num_rows - 1)
            yield self._without_replaced(rows)
        if last is not None:
            yield last.select(OBJECTS.names)

    def _without_replaced(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the last row, and rows whose next row has the same key.

        Dropped rows with equal keys are bad, except members that their archive replaces.
        """
        keys = rows.column("key")
        again = column_flags(pc.equal(keys[:-1], keys[1:]))
        containers = rows.column("container").to_numpy()
        same = (containers[:-1] == containers[1:]) & (containers[:-1] >= 0)
        for row in np.flatnonzero(again & ~same).tolist():
            message = "another object has the same key"
            self.bad.add(Failure(keys[row].as_py(), "config.bad_key", message))
        return rows.slice(0, rows.num_rows - 1).filter(pa.array(~again)).select(OBJECTS.names)


def _placed(batch: pa.RecordBatch, container: int) -> pa.RecordBatch:
    numbers = pa.array(np.full(batch.num_rows, container))
    if "place" not in batch.schema.names:
        batch = batch.append_column("place", numbers)
    return pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=_PLACED)
