"""The sample order: which samples there are, in the order in which they go into shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Dataset
from larder.errors import Failure
from larder.manifest.digest import RowDigest
from larder.manifest.files import ManifestFile, write_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.manifest.sort import RUN_ROWS, sort_batches
from larder.samples.contents import Contents, ContentsTally
from larder.samples.grouped import group_parts
from larder.samples.images import is_image
from larder.samples.parts import PARTS, BadKeys, Intake
from larder.samples.planner import ORDER, PLANNED, Planner

__all__ = ["SampleOrder", "SplitCount", "order_samples"]


@dataclass(frozen=True, slots=True)
class SplitCount:
    """Samples of a split, and the bytes of their objects."""

    samples: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """The samples of a dataset in the order of the shards.

    Attributes:
        file: Manifest of schema SAMPLE_ORDER.
        samples: How many there are.
        objects: Objects that are parts of them.
        object_bytes: The sizes of these objects together.
        image_objects: Those of them whose extension is an image's.
        splits: For every split of the dataset, in order, even if it is empty.
        classes: In the order of their numbers; empty for a dataset without labels.
        bad_keys: The first 1,000 objects that can be no part of a sample.
        bad_key_count: How many of those there are.
        ignored_count: Directory markers and label files, which are no samples either.
        digest: sha256 hex over the ordered rows: split, key, label, parts.
        contents: What the samples are made of.
        class_samples: Samples of each class.
    """

    file: ManifestFile
    samples: int
    objects: int
    object_bytes: int
    image_objects: int
    splits: Mapping[str, SplitCount]
    classes: tuple[str, ...]
    bad_keys: tuple[Failure, ...]
    bad_key_count: int
    ignored_count: int
    digest: str
    contents: Contents
    class_samples: tuple[int, ...]


def order_samples(
    objects: Iterable[pa.RecordBatch],
    dataset: Dataset,
    *,
    label_files: Mapping[str, bytes],
    out: Path,
    work_dir: Path,
    run_rows: int = RUN_ROWS,
) -> SampleOrder:
    """Group objects into samples, give each its split and label, and put them into order.

    The order is that of the splits in the dataset file; within a split by the UTF-8 of the sample
    key or, with ``shards.shuffle_seed``, by a seeded hash of it. It depends on the objects and the
    dataset alone, not on how they come or how much memory there is.

    Bad keys are left out and reported, whatever ``on_bad_key`` says: whether they stop the run is
    for the caller to decide. Memory is bounded by ``run_rows``, but for the classes, the label
    files and the parts of any one sample.

    Args:
        objects: Batches of schema OBJECTS, ordered by key, of any length.
        dataset: As configured.
        label_files: By split, the bytes of the files that ``labels.files`` names.
        out: The manifest to write.
        work_dir: Directory for what does not fit into memory; it is left as it was found.
        run_rows: Rows sorted in memory at once.

    Raises:
        ConfigError: ``config.unmatched_split``: objects that no split takes, or a sample in two.
            ``config.label``: a sample without a label, or with a part ``cls`` besides; a label
            file that cannot be understood; a class that is not pinned. ``config.invalid_value``:
            a glob that cannot be understood.
        StoreError: ``store.full``: no space is left.
    """
    bad_keys = BadKeys()
    planner = Planner(dataset, label_files)
    intake = Intake(planner.glob_rule, _label_keys(dataset), bad_keys)
    parts = sort_batches(
        intake.parts(objects), PARTS, ["sample", "ext", "key"], work_dir=work_dir, run_rows=run_rows
    )
    grouped = group_parts(parts, dataset.split_names, bad_keys)
    planned = sort_batches(
        planner.plan(grouped),
        PLANNED,
        ORDER,
        work_dir=work_dir,
        run_rows=run_rows,
    )
    tally = _Tally(planner)
    file = write_manifest(out, SAMPLE_ORDER, tally.rows(planned))
    return SampleOrder(
        file=file,
        samples=file.rows,
        objects=tally.objects,
        object_bytes=sum(count.bytes for count in tally.splits.values()),
        image_objects=tally.image_objects,
        splits=tally.splits,
        classes=tally.classes,
        bad_keys=tuple(bad_keys.shown),
        bad_key_count=bad_keys.count,
        ignored_count=intake.ignored,
        digest=tally.digest.hexdigest(),
        contents=tally.contents.contents(),
        class_samples=tuple(tally.class_samples.tolist()),
    )


def _label_keys(dataset: Dataset) -> list[str]:
    return list(dataset.labels.files.values()) if dataset.labels else []


class _Tally:
    """Turns planned samples into rows of the sample order, and counts them."""

    def __init__(self, planner: Planner) -> None:
        self.objects = self.image_objects = 0
        self.splits = dict.fromkeys(planner.split_names, SplitCount())
        self.classes: tuple[str, ...] = ()
        self.class_samples = np.zeros(0, np.int64)
        self.digest = RowDigest()
        self.contents = ContentsTally()
        self._planner = planner

    def rows(self, planned: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of schema SAMPLE_ORDER for sorted rows of `larder.samples.planner.PLANNED`."""
        numbers: pa.Array | None = None
        for batch in planned:
            # Only now: no row comes out of the sort before every sample has been labelled.
            if numbers is None:
                numbers = self._numbers()
            self._count(batch)
            splits = pa.array(self._planner.split_names).take(batch.column("split"))
            labels = numbers.take(batch.column("label"))
            if self.classes:
                self.class_samples += np.bincount(labels.to_numpy(), minlength=len(self.classes))
            columns = [splits, batch.column("key"), labels, batch.column("parts")]
            rows = pa.RecordBatch.from_arrays(columns, schema=SAMPLE_ORDER)
            self.digest.update_batch(rows)
            yield rows

    def _numbers(self) -> pa.Array:
        """The number of the class by code."""
        if self._planner.labeller is None:
            return pa.array([], pa.int32())
        numbering = self._planner.labeller.number()
        self.classes = numbering.classes
        self.class_samples = np.zeros(len(self.classes), np.int64)
        return pa.array(numbering.labels)

    def _count(self, batch: pa.RecordBatch) -> None:
        self.contents.add(batch.column("key"), batch.column("parts"))
        parts = batch.column("parts").flatten()
        self.objects += len(parts)
        self.image_objects += _images(parts.field("ext"))
        ends = np.append(0, np.cumsum(pc.list_value_length(batch.column("parts")).to_numpy()))
        sizes = np.append(0, np.cumsum(parts.field("size_bytes").to_numpy()))[ends]
        runs = pc.run_end_encode(batch.column("split"))
        start = 0
        for split, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            name = self._planner.split_names[split]
            before = self.splits[name]
            self.splits[name] = SplitCount(
                samples=before.samples + stop - start,
                bytes=before.bytes + int(sizes[stop] - sizes[start]),
            )
            start = stop


def _images(exts: pa.Array) -> int:
    encoded = exts.dictionary_encode()
    image = np.array([is_image(ext) for ext in encoded.dictionary.to_pylist()], np.bool_)
    return int(image[encoded.indices.to_numpy()].sum())
