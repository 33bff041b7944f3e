"""What shards are made of, what is planned, and the result."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress, repeat
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from larder.manifest.schemas import columns, parts_of
from larder.manifest.spool import Spool
from larder.names import Digest, FileName
from larder.samples.columns import column_structs, column_values, named_tuples, repeated_texts
from larder.samples.indexed import IndexedPart, IndexedSample

if TYPE_CHECKING:
    from larder.errors import Failure
    from larder.shards.images.check import FormNote

ROWS = pa.schema(
    columns(
        key="string",
        offset="int64",
        length="int64",
        label="int32?",
        parts=parts_of(
            ext="string",
            source="string?",
            etag="string?",
            offset="int64?",
            length="int64",
            crc32c="uint32",
        ),
    )
)
"""One row per sample of a shard, in its order.

``offset`` and ``length`` of a sample are its place in the shard's first file: in bytes, with all
that belongs to it, such as headers and padding; in a columnar format the number of its row, and 1.
Those of a part are the place of its content, of which ``crc32c`` is the checksum; the offset is
null if the format stores the content in another form. ``source`` is the key of the object that the
part was read from, ``etag`` is that object's etag; both are null for a label. A label is the part
``cls``, in ASCII decimal digits, in whatever form the format stores it.
"""

NO_ROWS = Spool(ROWS)
"""The rows of a shard that was not written."""

RECEIPT_ROWS = pa.schema(
    [
        *columns(key="string", offset="int64?", length="int64?", label="int32?"),
        ROWS.field("parts"),
        *columns(bad="string?"),
    ]
)
"""One row per sample that was planned for a shard: the columns of `ROWS`, and why it was left out.

A sample that was left out as bad has no place, and its parts have the lengths of their objects and
no checksum (0).
"""


_AT_A_TIME = 1_024


# Named tuples, because there are millions of them: a frozen dataclass takes five times as long.
class Part(NamedTuple):
    """One source object of a sample: a row's entry of `larder.manifest.schemas.SAMPLE_ORDER`.

    ``ext`` is without the first dot, such as ``jpg`` or ``seg.png``; the size and the etag are
    those of the listing. With an empty etag the object is read regardless of its etag.
    """

    ext: str
    key: str
    size_bytes: int
    etag: str


class Packed(NamedTuple):
    """Where a sample is in a shard of the previous version, in which it may have another split.

    The parts are those with source objects: there is none for the label, which is not known here.
    """

    segment: str
    split: str
    sample: IndexedSample

    @property
    def in_ranges(self) -> bool:
        """Whether all parts are ranges of the shard; else only its format's reader has them."""
        return None not in [part.offset for part in self.sample.parts]


class PlannedSample(NamedTuple):
    """One planned sample: a row of `larder.manifest.schemas.SAMPLE_ORDER`.

    Attributes:
        parts: Its objects, sorted by ``ext``.
        packed: Where it is read, if not from its objects.
        bad: Why it is left out without being read; None if it is not.
    """

    split: str
    key: str
    label: int | None
    parts: tuple[Part, ...]
    packed: Packed | None = None
    bad: str | None = None


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write.

    Attributes:
        index: Its number within the split, which goes on from segment to segment.
        name: Its file name, such as ``imagenet-train-000000.tar``; the first if it has several.
        first_row: Row of its first sample in the sample order, counted over all splits.
        bytes: Length of its files if no sample is left out; an estimate if the format does not know
            sizes in advance.
    """

    split: str
    index: int
    name: str
    first_row: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """Consecutive shards that one task writes."""

    index: int
    shards: tuple[ShardPlan, ...]

    @property
    def name(self) -> str:
        """The first shard, for people."""
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
    """A file of a shard. In most formats a shard has one.

    The etag is empty if unknown. It is not compared: it depends on the store, not on the content.
    """

    name: FileName
    bytes: int
    sha256: Digest
    etag: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of one `ShardPlan`: its samples (by `ROWS`), those left out as bad (by
    `RECEIPT_ROWS`), and the first failures.

    There are no files and no samples if it was not written. ``forms`` are what its images decode
    to, if that was asked for.
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
        """Of all its files; 0 if it was not written."""
        return sum(file.bytes for file in self.files)


def label_bytes(label: int) -> bytes:
    """The content of a label's part: ASCII decimal digits."""
    return b"%d" % label


def read_samples(batches: Iterable[pa.RecordBatch]) -> Generator[PlannedSample]:
    """The samples of record batches of `larder.manifest.schemas.SAMPLE_ORDER`, in their order."""
    for batch in batches:
        # Few at a time: the garbage collector looks at all that exist again and again.
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


def _packed(places: pa.StructArray, keys: Iterable[str]) -> Iterator[Packed]:
    segments, splits, shards = (
        repeated_texts(places.field(name)) for name in ("segment", "split", "shard")
    )
    offsets, lengths = (column_values(places.field(name)) for name in ("offset", "length"))
    parts = column_structs(places.field("parts"), IndexedPart._fields, IndexedPart)
    old = named_tuples(IndexedSample, keys, shards, offsets, lengths, repeat(None), parts)
    return named_tuples(Packed, segments, splits, old)
