"""Assigns the rows of the sample order to the shards of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from larder.config.models.dataset import Dataset
from larder.config.shape import FormatOptions
from larder.jobs.results import Totals
from larder.manifest.manifest_files import ManifestFile, read_manifest, write_manifest
from larder.manifest.schemas import SAMPLE_ORDER, table
from larder.segments.image_rules import image_options
from larder.shards.formats import shard_format
from larder.shards.model import ShardPlan
from larder.shards.packing import plan_shards, running_totals, target_for
from larder.shards.sizes import split_sizes, with_estimates
from larder.versions.documents import Shape

SHARD_PLAN = table(
    split="string", index="int64", name="string", first_row="int64", rows="int64", bytes="int64"
)
"""One row per planned shard, with its rows of the sample order."""


def pack(
    dataset: Dataset,
    sample_order: ManifestFile,
    samples: int,
    folder: Path,
    options: FormatOptions,
    *,
    targets: Mapping[str, int] | None = None,
    first_shards: Mapping[str, int] | None = None,
) -> tuple[Shape, dict[str, Totals], ManifestFile]:
    """Fill shards with the samples of a sample order. Memory does not depend on their number.

    Returns the shape of the segment, the number and bytes of its shards in each split, and their
    manifest. ``targets`` is the size of a split's shards if it is not ``shards.bytes``; the default
    follows from ``shards.count_min``. ``first_shards`` is the number of a split's first shard,
    unless it is 0.
    """
    shards = dataset.shards
    format_ = shard_format(shards.format, options)
    transform = dataset.image_options.transform
    rows = (
        with_estimates(batch, transform)
        for batch in read_manifest(sample_order.path, SAMPLE_ORDER, rows=samples)
    )
    ends = running_totals(split_sizes(rows, format_.sample_sizes), folder / "totals")
    if targets is None and shards.count_min is not None:  # never with samples_per_shard
        targets = {}
        for split, of_split in ends.items():
            target = target_for(of_split, shards.bytes, shards.count_min, format_.empty_bytes)
            if target != shards.bytes:
                targets[split] = target
    targets = targets or {}
    counts = {split: Totals() for split in dataset.split_names}

    def batches() -> Iterator[pa.RecordBatch]:
        plans = plan_shards(
            ends,
            shards.bytes,
            dataset.name,
            format_,
            targets=targets,
            first_shards=first_shards,
            samples_per_shard=shards.samples_per_shard,
        )
        for plan in plans:
            counts[plan.split] += Totals(1, plan.bytes)
            row = [plan.split, plan.index, plan.name, plan.first_row, plan.rows, plan.bytes]
            yield pa.record_batch([[value] for value in row], schema=SHARD_PLAN)

    file = write_manifest(folder / "shards.parquet", SHARD_PLAN, batches())
    shape = Shape(
        format=shards.format,
        format_version=format_.version,
        bytes=shards.bytes,
        split_bytes=targets,
        shuffle_seed=shards.shuffle_seed,
        options=options,
        samples_per_shard=shards.samples_per_shard,
        images=image_options(dataset),
        library=format_.library,
    )
    return shape, counts, file


def laid_out(
    format_name: str,
    options: FormatOptions,
    sample_order: ManifestFile,
    samples: int,
    before: FormatOptions | None,
) -> FormatOptions:
    """Return the options of a format, with the layout of a segment if the format needs one.

    ``before`` are the options of the last kept segment. A sample that the format cannot store is
    refused by name (``config.invalid_value``).
    """
    format_ = shard_format(format_name, options)
    if not format_.surveys:
        return options
    columns = ["label", "parts"]
    rows = read_manifest(sample_order.path, SAMPLE_ORDER, columns=columns, rows=samples)
    return replace(options, layout=format_.survey(rows, before.layout if before else None))


def planned_shards(path: Path) -> Iterator[ShardPlan]:
    for batch in read_manifest(path, SHARD_PLAN):
        yield from map(ShardPlan, *(column.to_pylist() for column in batch.columns))
