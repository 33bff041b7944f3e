"""Samples, plans and results of shards."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from larder.manifest.schemas import packed_columns
from larder.manifest.sealed import SPARSE
from larder.manifest.spool import Spool
from larder.names import Digest, FileName, PlainName
from larder.samples.arrow_columns import column_structs, column_values, named_tuples, repeated_texts
from larder.samples.indexed import IndexedPart, IndexedSample

if TYPE_CHECKING:
    from larder.errors import Failure
    from larder.shards.images.check import FormNote

ROWS = packed_columns(
    "key offset? length? label? parts bad?",
    "ext source? etag? offset? length crc32c",
)
"""One row per sample of a shard, in the shard's order, or per sample left out of it as bad."""

NO_ROWS = Spool(ROWS)
"""The rows of a shard that was not written."""

_AT_A_TIME = 1_024


# Named tuples, because there are millions of them: a frozen dataclass takes five times as long.
class Part(NamedTuple):
    """One source object of a sample: a row's entry of `larder.manifest.schemas.SAMPLE_ORDER`.

    ``ext`` is without the first dot, such as ``seg.png``. An object with an empty etag is read
    regardless of its etag.
    """

    ext: str
    key: str
    size_bytes: int
    etag: str


class PlannedSample(NamedTuple):
    """One planned sample: a row of `larder.manifest.schemas.SAMPLE_ORDER`.

    Attributes:
        parts: The objects, sorted by ``ext``.
        packed: The place in an old shard, if the sample is not read from its objects: ``shard`` is
            the shard's key. Only parts with source objects are listed, not the label.
        bad: The reason for leaving the sample out without reading it; None for other samples.
    """

    split: str
    key: str
    label: int | None
    parts: tuple[Part, ...]
    packed: IndexedSample | None = None
    bad: str | None = None


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write.

    Attributes:
        index: Number in the split, counted on from segment to segment.
        name: Name of the shard's first file, such as ``imagenet-train-000000.tar``.
        first_row: Row of the first sample in the sample order, counted over all splits.
        bytes: Length of the files if no sample is left out; an estimate if the format does not know
            sizes in advance.
    """

    split: str
    index: int
    name: str
    first_row: int
    rows: int
    bytes: int


class ShardBatch(NamedTuple):
    """Consecutive shards that one task writes."""

    shards: tuple[ShardPlan, ...]

    @property
    def name(self) -> str:
        """The name of the first shard, for messages."""
        return self.shards[0].name

    @property
    def first_row(self) -> int:
        return self.shards[0].first_row

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a shard, or with a ``kind``, an index of the shard for other readers.

    The etag is empty if unknown, and not compared, because it depends on the store.
    """

    name: FileName
    bytes: int
    sha256: Digest
    etag: str = field(default="", compare=False)
    kind: PlainName = field(default="", metadata=SPARSE)


class ShardResult(NamedTuple):
    """The result of one `ShardPlan`: written samples, skipped samples and the first failures.

    ``samples`` and ``skipped`` have rows of `ROWS`. A shard that was not written has no files and
    no samples. ``forms`` are the types of decoded arrays, if requested.
    """

    split: str
    name: str
    files: tuple[WrittenFile, ...]
    samples: Spool
    skipped: Spool
    failures: tuple[Failure, ...] = ()
    failed: int = 0
    forms: tuple[FormNote, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of all files; 0 if the shard was not written."""
        return sum(file.bytes for file in self.files)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the shard's receipt."""
        return chain(self.samples.read(), self.skipped.read())


def label_bytes(label: int) -> bytes:
    """Return the content of a label's part: ASCII decimal digits."""
    return b"%d" % label


def read_samples(batches: Iterable[pa.RecordBatch]) -> Generator[PlannedSample]:
    """Yield the samples of record batches of `larder.manifest.schemas.SAMPLE_ORDER`, in order."""
    for batch in batches:
        # Few at a time: the garbage collector visits all existing samples again and again.
        for start in range(0, len(batch), _AT_A_TIME):
            yield from _samples_of(batch.slice(start, _AT_A_TIME))


def _samples_of(batch: pa.RecordBatch) -> Iterator[PlannedSample]:
    splits, keys, labels = (column_values(batch.column(name)) for name in ("split", "key", "label"))
    parts = column_structs(batch.column("parts"), Part._fields, Part)
    packed, bad = batch.column("packed"), batch.column("bad")
    if packed.null_count == bad.null_count == len(batch):  # as in a first build
        yield from named_tuples(
            PlannedSample, splits, keys, labels, parts, repeat(None), repeat(None)
        )
        return
    flags = column_values(packed.is_valid())
    places = _packed(packed.drop_null(), compress(keys, flags))
    packed_places = (next(places) if is_there else None for is_there in flags)
    messages = repeat(None) if bad.null_count == len(batch) else bad.to_pylist()
    yield from named_tuples(PlannedSample, splits, keys, labels, parts, packed_places, messages)


def _packed(places: pa.StructArray, keys: Iterable[str]) -> Iterator[IndexedSample]:
    shards = repeated_texts(places.field("shard"))
    offsets, lengths = (column_values(places.field(name)) for name in ("offset", "length"))
    parts = column_structs(places.field("parts"), IndexedPart._fields, IndexedPart)
    return named_tuples(IndexedSample, keys, shards, offsets, lengths, repeat(None), parts)
