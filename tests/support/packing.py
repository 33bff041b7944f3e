"""Packs samples into shards, and reads them back, without a plan or a pipeline."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from larder.config.shape import FormatOptions, Layout
from larder.disk import scratch
from larder.errors import Failure
from larder.manifest.manifest_files import ManifestFile
from larder.manifest.schemas import INDEXED
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedSample, read_index
from larder.segments.index_writer import IndexWriter
from larder.shards.formats import shard_format
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.images.check import ImageRules
from larder.shards.model import ShardPlan, ShardResult, read_samples
from larder.shards.packing import plan_shards, running_totals
from larder.shards.reading.fetch import skipped_failure
from larder.shards.reading.readahead import open_reads
from larder.shards.shard_build import ShardBuild, build_shard
from larder.shards.sizes import split_sizes
from larder.store.base import Readable, Store
from larder.versions.index import Shard
from tests.support.sample_orders import Content

UNCHECKED = ImageRules(validate="none")


def planned(
    order: pa.RecordBatch, format_: ShardFormat, shard_bytes: int = 10**9, **options: Any
) -> list[ShardPlan]:
    with scratch() as folder:
        ends = running_totals(split_sizes([order], format_.sample_sizes), folder / "totals")
        return list(plan_shards(ends, shard_bytes, "d", format_, **options))


def pack(
    order: pa.RecordBatch,
    store: Store,
    format_: ShardFormat,
    plans: Iterable[ShardPlan] | None = None,
    *,
    source: Any = None,
    folder: str = "",
    concurrency: int = 1,
    memory_bytes: int = 1 << 24,
    **build: Any,
) -> list[ShardResult]:
    """The shards of all samples of an order, in ``folder`` by split if there is one.

    ``build`` are fields of `ShardBuild`; images are not checked by default.
    """
    build.setdefault("rules", UNCHECKED)
    samples = read_samples([order])
    with open_reads(concurrency, memory_bytes) as reads:
        return [
            build_shard(
                plan,
                samples,
                format_,
                lambda name, split=plan.split: store.writer(  # type: ignore[misc]
                    f"{folder}/{split}/{name}" if folder else name
                ),
                ShardBuild(source or store, reads, **build),
            )
            for plan in (planned(order, format_) if plans is None else plans)
        ]


def surveyed(
    name: str, batches: Iterable[pa.RecordBatch], before: Layout | None = None
) -> ShardFormat:
    """A format, with the layout of these samples if it needs one."""
    format_ = shard_format(name)
    if not format_.surveys:
        return format_
    return shard_format(name, FormatOptions(layout=format_.survey(batches, before)))


def index_of(result: ShardResult) -> Iterator[pa.RecordBatch]:
    """The rows of a shard's samples in the index of a segment, by INDEXED."""
    for rows in result.samples.read():
        samples = [{**row, "shard": result.name} for row in rows.to_pylist()]
        yield pa.RecordBatch.from_pylist(samples, schema=INDEXED)


def places_of(result: ShardResult, segment: str) -> Iterator[dict[str, Any]]:
    """Where the samples of a shard are packed, as in SAMPLE_ORDER, with their keys."""
    for row in (row for rows in result.samples.read() for row in rows.to_pylist()):
        place = {"shard": f"{segment}/{result.split}/{result.name}"}
        yield {**row, **place, "parts": [part for part in row["parts"] if part["source"]]}


def write_index(
    folder: Path, rows: Iterable[pa.RecordBatch], shards: Iterable[Shard]
) -> ManifestFile:
    """The index of a segment with these samples, by INDEXED, and shards."""
    with IndexWriter(folder) as writer:
        samples = (row for batch in rows for row in batch.to_pylist())
        for shard, group in groupby(samples, key=lambda row: row["shard"]):
            writer.append(shard, pa.RecordBatch.from_pylist(list(group), schema=INDEXED))
        for each in shards:
            writer.add_shard(each)
        return writer.finish()


def indexed(result: ShardResult) -> list[IndexedSample]:
    return list(read_index(index_of(result)))


def compared(*results: ShardResult) -> list[Any]:
    """Return results for a comparison: their rows count, in any division into batches."""
    return [
        tuple(
            pa.Table.from_batches(value.read(), value.schema) if isinstance(value, Spool) else value
            for value in result
        )
        for result in results
    ]


def left_out(result: ShardResult) -> list[Failure]:
    return [
        skipped_failure(row["key"], [part["source"] for part in row["parts"]], row["bad"])
        for batch in result.skipped.read()
        for row in batch.to_pylist()
    ]


def read_back(
    store: Readable, format_: ShardFormat, samples: list[IndexedSample]
) -> list[dict[str, bytes]]:
    with format_.open(store, samples[0].shard) as reader:
        return [dict(reader.read(sample)) for sample in samples]


def expected(content: Content) -> dict[str, bytes]:
    """What is read back: the parts, and the label as one."""
    label = {} if content.label is None else {"cls": b"%d" % content.label}
    return {**content.parts, **label}
