"""The sample order: all samples, in the order in which they go into shards.

A `Planner` gives each sample its split, position and label by the dataset file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.dataset import Dataset
from larder.errors import ConfigError, Failure, Failures
from larder.manifest.extents import is_own
from larder.manifest.manifest_files import ManifestFile, read_manifest, write_manifest
from larder.manifest.query import Stream
from larder.manifest.row_digest import RowDigest
from larder.manifest.schemas import SAMPLE_ORDER, SKIPPED, lists_of
from larder.manifest.sort import sort, work_folder
from larder.samples.arrow_columns import FROM_PREVIOUS, column_flags, column_texts, from_objects
from larder.samples.grouping import Complete, Grouped, group_parts, without_duplicates
from larder.samples.labels import Labeller
from larder.samples.matching import Matching
from larder.samples.naming import LABEL_EXT
from larder.samples.parts import (
    PARTS,
    Intake,
    Joins,
    annotation_parts,
    of_no_sample,
    with_stored_exts,
)
from larder.samples.splits import GlobRule, HashRule, SplitRule, seeded_hashes
from larder.samples.statistics import SampleStatistics, SampleTally
from larder.samples.strata import StrataRule

SPLIT_RULES: Mapping[str, Callable[[Any], SplitRule]] = {
    "globs": GlobRule,
    "hash": HashRule,
    "strata": StrataRule,
}
"""Split rules by ``rule`` of the configuration that each is made from."""

_Orders = npt.NDArray[np.uint64]


class Planner:
    """A planner that adds split, order and label to each sample; see `order_samples`."""

    def __init__(
        self,
        dataset: Dataset,
        label_files: Mapping[str, bytes],
        known_classes: Sequence[str] = (),
    ) -> None:
        labels = dataset.labels
        self.split_names = dataset.split_names
        join = dataset.samples.join
        self.joins = Joins(join) if join else None
        self.split_rule = SPLIT_RULES[dataset.split_options.rule](dataset.split_options)
        archives = dataset.source.archives == "expand"
        self.labeller = (
            Labeller(labels, self.split_names, label_files, known_classes, archives=archives)
            if labels
            else None
        )
        self._seed = dataset.shards.shuffle_seed

    def orders(self, sample_keys: pa.Array) -> _Orders:
        """Return the hash that orders samples in their split, or 0."""
        if self._seed is None:
            return np.zeros(len(sample_keys), np.uint64)
        return seeded_hashes(self._seed, b"larder shuffle", column_texts(sample_keys))

    def plan(self, grouped: Grouped) -> pa.RecordBatch:
        keys = grouped.first("sample")
        splits = self.split_rule.of_samples(keys, grouped.first("split").to_numpy())
        columns = {"split": pa.array(splits), "order": pa.array(self.orders(keys))}
        if self.labeller:
            parts = grouped.parts()
            _check_no_label_part(keys, parts)
            texts_of = _texts(grouped) if self.labeller.from_column else None
            codes = self.labeller.codes(splits, keys, parts, texts_of)
            columns["label"] = pa.array(codes, pa.int32())
        owners = pa.array(np.repeat(np.arange(len(keys)), grouped.lengths))
        rows = grouped.rows
        for name, values in columns.items():
            rows = rows.set_column(
                PARTS.get_field_index(name), PARTS.field(name), values.take(owners)
            )
        return rows


def _texts(grouped: Grouped) -> pa.Array:
    """Return each sample's class from a table; null without a class."""
    texts = grouped.rows.column("class_name")
    rows = np.flatnonzero(column_flags(texts.is_valid()))
    owners = np.repeat(np.arange(len(grouped.lengths)), grouped.lengths)[rows]
    samples, firsts = np.unique(owners, return_index=True)
    places = np.full(len(grouped.lengths), -1)
    places[samples] = rows[firsts]
    return texts.take(pa.array(places, mask=places < 0))


def _check_no_label_part(keys: pa.Array, parts: pa.Array) -> None:
    place = pc.index(parts.flatten().field("ext"), LABEL_EXT).as_py()
    if place >= 0:
        sample = int(pc.list_parent_indices(parts)[place].as_py())
        raise ConfigError(
            "config.label",
            f"the sample already has a part {LABEL_EXT}, which its label would become",
            where=keys[sample].as_py(),
            hint="remove labels from the dataset, or exclude these parts with source.exclude",
        )


_BY_SAMPLE = ("sample", "ext", "key")
_IN_ORDER = ("split", "order", *_BY_SAMPLE)


class SplitCount(NamedTuple):
    samples: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """The samples of a dataset in the order of the shards.

    Attributes:
        file: Manifest of schema SAMPLE_ORDER; the first rows are the samples.
        splits: Counts of every split of the dataset, in order, even of an empty split.
        bad_keys: Objects that cannot be part of a sample.
        incomplete: Samples without all parts, and entries of annotation files without a sample;
            none if such samples are kept.
        ignored_count: Number of directory markers and label files, which are not samples either.
        digest: sha256 hex over the ordered samples: split, key, label, and each part's extension,
            key, size and etag.
        split_classes: Number of samples of each class, by split.
        unfit: Entries of annotation files without a sample, if samples without all parts are kept.
        empty: Rows of tables that became no sample.
    """

    file: ManifestFile
    samples: int
    objects: int
    object_bytes: int
    splits: Mapping[str, SplitCount]
    classes: tuple[str, ...]
    bad_keys: Failures
    incomplete: Failures
    ignored_count: int
    digest: str
    statistics: SampleStatistics
    split_classes: Mapping[str, tuple[int, ...]]
    unfit: Failures
    empty: Failures = field(default_factory=Failures)

    @property
    def class_samples(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(*self.split_classes.values(), strict=True)))

    @property
    def left_out(self) -> tuple[Failure, ...]:
        return (*self.bad_keys.shown, *self.incomplete.shown, *self.empty.shown)

    @property
    def left_out_count(self) -> int:
        return self.bad_keys.count + self.incomplete.count + self.empty.count


def order_samples(
    objects: Iterable[pa.RecordBatch],
    dataset: Dataset,
    *,
    label_files: Mapping[str, bytes],
    out: Path,
    work_dir: Path,
    known_classes: Sequence[str] = (),
    published: Iterable[pa.RecordBatch] = (),
    annotated: Matching | None = None,
) -> SampleOrder:
    """Group objects into samples, give each its split and label, and sort them.

    Samples are in the order of their splits in the dataset file. Within a split, they are in the
    order of the sample key's UTF-8 or, with ``shards.shuffle_seed``, of the key's seeded hash. The
    order depends only on the objects and the dataset, not on the batches or the available memory.

    Bad keys are left out: the caller decides whether they stop the run. Memory holds two concurrent
    calls of `larder.manifest.sort.sort`, the classes, the label files and the parts of one sample.

    Args:
        objects: Batches of schema OBJECTS, ordered by key, of any length.
        dataset: The configured dataset.
        label_files: Bytes of the files in ``labels.files``, by split.
        out: The manifest to write.
        work_dir: Directory for spilled rows; nothing remains in it.
        known_classes: Classes that keep their numbers, in order; new classes follow.
        published: If classes are divided: the samples that keep their splits, as rows of
            `larder.samples.strata.PUBLISHED`, each sample once.
        annotated: The entries of annotation files, if any exist.
    """
    bad_keys = Failures()
    planner = Planner(dataset, label_files, known_classes)
    joined = planner.joins.names if planner.joins else ()
    complete = Complete(joined, annotated is not None, dataset.samples.missing)
    intake = Intake(planner.split_rule, ignored_keys(dataset), bad_keys, planner.joins)

    def in_order(
        by: Sequence[str], parts: Iterable[pa.RecordBatch]
    ) -> closing[Generator[pa.RecordBatch]]:
        return closing(sort(Stream(PARTS, parts), by, work_dir=work_dir))

    def annotations() -> Iterator[pa.RecordBatch]:
        if annotated is not None:
            yield from annotation_parts(annotated.rows(), planner.split_rule, complete.annotation)

    def planned() -> Iterator[pa.RecordBatch]:
        transform = dataset.image_options.transform
        stored = with_stored_exts(chain(intake.parts(objects), annotations()), transform)
        with in_order(_BY_SAMPLE, stored) as parts:
            for grouped in group_parts(parts):
                rows, bad = without_duplicates(grouped, planner.split_names, bad_keys)
                rows, incomplete = complete.divide(rows)
                yield planner.plan(rows)
                yield of_no_sample(bad)
                yield of_no_sample(incomplete)
        yield from intake.label_files

    tally = _OrderTally(planner)
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(work_dir))
        placed = planner.split_rule.divided(planned(), planner.labeller, published, folder)
        parts = stack.enter_context(in_order(_IN_ORDER, placed))
        rows = tally.rows(group_parts(parts, ("split", "sample")))
        file = write_manifest(out, SAMPLE_ORDER, rows)
    unfit = annotated.unfit if annotated else Failures()
    if dataset.samples.missing != "keep":
        complete.incomplete.add_counted(unfit.shown, unfit.count)
        unfit = Failures()
    return SampleOrder(
        file=file,
        samples=sum(count.samples for count in tally.splits.values()),
        objects=tally.objects,
        object_bytes=sum(count.bytes for count in tally.splits.values()),
        splits=tally.splits,
        classes=tally.classes,
        bad_keys=bad_keys,
        incomplete=complete.incomplete,
        ignored_count=intake.ignored,
        digest=tally.digest.hexdigest(),
        statistics=tally.sample_tally.statistics(),
        split_classes={name: tuple(each.tolist()) for name, each in tally.split_classes.items()},
        unfit=unfit,
    )


def objects_of(order: Path, rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the source objects from which the first rows of an order are read, as parts."""
    columns = ("parts", *FROM_PREVIOUS)
    for batch in read_manifest(order, SAMPLE_ORDER, columns=columns, rows=rows):
        parts = batch.filter(pa.array(from_objects(batch))).column("parts").flatten()
        objects = pa.RecordBatch.from_struct_array(parts)
        yield objects.filter(pc.invert(is_own(objects.column("etag"))))


def ignored_keys(dataset: Dataset) -> list[str]:
    """Return the keys of label and annotation files, which are not parts of samples."""
    labels = list(dataset.labels.files.values()) if dataset.labels else []
    annotations = dataset.samples.annotations
    return labels + list(annotations.files if annotations else ())


def identity_parts(lists: pa.Array) -> pa.Array:
    """Convert parts of SAMPLE_ORDER to parts of SKIPPED, which have no checksums."""
    parts, offsets = lists.flatten(), lists.offsets.to_numpy()
    names = {"ext": "ext", "source": "key", "length": "size_bytes", "etag": "etag"}
    kind = SKIPPED.field("parts").type
    return lists_of(kind, lambda name: parts.field(names[name]), offsets - offsets[0])


def identity_rows(samples: pa.RecordBatch) -> pa.RecordBatch:
    """Return the fields of samples in an order that their digest covers."""
    columns = [samples.column(name) for name in ("split", "key", "label")]
    arrays = [*columns, identity_parts(samples.column("parts"))]
    return pa.RecordBatch.from_arrays(arrays, SAMPLE_ORDER.names[:4])


class _OrderTally:
    """A converter of sorted parts to rows of the sample order, which also counts them."""

    def __init__(self, planner: Planner) -> None:
        self.objects = 0
        self.splits = dict.fromkeys(planner.split_names, SplitCount())
        self.classes: tuple[str, ...] = ()
        self.split_classes = dict.fromkeys(planner.split_names, np.zeros(0, np.int64))
        self.digest = RowDigest()
        self.sample_tally = SampleTally()
        self._planner = planner
        self._names = pa.array([*planner.split_names, ""])

    def rows(self, in_order: Iterable[Grouped]) -> Iterator[pa.RecordBatch]:
        numbers: pa.Array | None = None
        for grouped in in_order:
            # Number classes only now: the sort returns no row before every sample is labelled.
            if numbers is None:
                numbers = self._numbers()
            splits = np.minimum(grouped.first("split").to_numpy(), len(self._names) - 1)
            names = self._names.take(pa.array(splits))
            columns = [names, grouped.first("sample"), numbers.take(grouped.first("label"))]
            samples = int(np.searchsorted(splits, len(self._names) - 1))
            parts = grouped.parts()
            rows = pa.RecordBatch.from_arrays([*columns, parts], SAMPLE_ORDER.names[:4])
            self._count(rows.slice(0, samples))
            types = (SAMPLE_ORDER.field(name).type for name in FROM_PREVIOUS)
            nulls = (pa.nulls(len(splits), kind) for kind in types)
            yield pa.RecordBatch.from_arrays([*columns, parts, *nulls], schema=SAMPLE_ORDER)

    def _numbers(self) -> pa.Array:
        if self._planner.labeller is None:
            return pa.array([], pa.int32())
        numbering = self._planner.labeller.number()
        self.classes = numbering.classes
        none = np.zeros(len(self.classes), np.int64)
        self.split_classes = dict.fromkeys(self.split_classes, none)
        return pa.array(numbering.labels)

    def _count(self, samples: pa.RecordBatch) -> None:
        self.digest.update_batch(identity_rows(samples))
        self.sample_tally.add(samples.column("key"), samples.column("parts"))
        parts = samples.column("parts").flatten()
        self.objects += len(parts)
        ends = np.append(0, np.cumsum(pc.list_value_length(samples.column("parts")).to_numpy()))
        sizes = np.append(0, np.cumsum(parts.field("size_bytes").to_numpy()))[ends]
        runs = pc.run_end_encode(samples.column("split"))
        start = 0
        for split, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            before = self.splits[split]
            self.splits[split] = SplitCount(
                samples=before.samples + stop - start,
                bytes=before.bytes + int(sizes[stop] - sizes[start]),
            )
            if self.classes:
                labels = samples.column("label").slice(start, stop - start).to_numpy()
                counts = np.bincount(labels, minlength=len(self.classes))
                self.split_classes[split] = self.split_classes[split] + counts
            start = stop
