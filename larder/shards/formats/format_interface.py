"""Interface of shard formats: each is a class in its own module, and one line in the registry.

A format names shards and their files, computes sizes of samples, writes samples, and reads samples
back by their index entries. A format does not deal with splits, packing, receipts or manifests.

A format also lists its kinds of index files for readers other than Larder's: every shard has one
file of each kind. The file is made of the shard's own index rows as soon as the shard is written:
nothing is read again or sorted. The indexes of a whole split belong to a version, because only a
version defines the shards of a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import google_crc32c
import pyarrow as pa

from larder.config.shape import FormatOptions, Layout
from larder.errors import Failure
from larder.manifest.sealed import StoredFile
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedSample, SampleReader
from larder.shards.hashed_output import HashedOutput
from larder.shards.index_rows import IndexRows
from larder.shards.model import PlannedSample, ShardPlan, WrittenFile
from larder.shards.reading.fetch import Body, Contents
from larder.shards.reading.large import stream
from larder.shards.reading.ranges import PartReader
from larder.shards.reading.readahead import Lot
from larder.shards.sizes import Sizes
from larder.store.base import Buffer, Readable


class ReaderIndex(Protocol):
    """A kind of index file. Instances have no state and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``dali``; unique in a format."""

    def file_name(self, shard: str) -> str:
        """Return the name of the index file for a shard."""

    def content(self, rows: Spool) -> Iterator[bytes] | None:
        """Yield the content in pieces; the joined content must depend on the rows alone.

        Work on columns, and on some thousand samples at a time: a shard may have a million. Return
        None if readers could not use the file; then no file is written.
        """


def index_contents(
    indexes: Sequence[ReaderIndex], shard: str, rows: Spool
) -> Iterator[tuple[str, str, Iterator[bytes]]]:
    """Yield kind, name and pieces of each index file; nothing if the shard was not written."""
    for index in indexes if rows.num_rows else ():
        pieces = index.content(rows)
        if pieces is not None:
            yield index.kind, index.file_name(shard), pieces


def index_files(
    indexes: Sequence[ReaderIndex], shard: str, rows: Spool
) -> Iterator[tuple[WrittenFile, bytes]]:
    """Like `index_contents`, but yield each description with its full content, held in memory."""
    for kind, name, pieces in index_contents(indexes, shard, rows):
        data = b"".join(pieces)
        yield WrittenFile(name, len(data), hashlib.sha256(data).hexdigest(), kind=kind), data


class Split(NamedTuple):
    """A split of a version; all samples of its shards belong to the split.

    ``shards`` are the first file of each shard, and its number of samples. ``to_root`` leads from
    the folder of the index file to the dataset's root: ``../../..``.
    """

    dataset: str
    name: str
    shards: Sequence[tuple[StoredFile, int]]
    to_root: str


class SplitIndex(Protocol):
    """A kind of index file. Instances do not change and are used by many threads."""

    @property
    def kind(self) -> str:
        """The folder of these files, such as ``wids``; unique in a format."""

    def content(self, split: Split) -> bytes:
        """Return the file's JSON, which must depend on the split alone."""


class ShardWriter:
    """A writer of one shard, whose bytes and index rows must depend on nothing but the samples.

    Attributes:
        least_together: Number of samples from which on `append_all` is faster than `append`; None
            if the writer has only `append`.
    """

    least_together: int | None = None

    def __init__(self, output: HashedOutput) -> None:
        self._output = output
        self._rows = IndexRows()

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> Failure | None:
        """Append a sample whose parts are in memory.

        Args:
            sample: The planned sample.
            bodies: The contents of ``sample.parts``, in the same order.

        Returns:
            The failure, if the format cannot store these contents; then nothing was written. A
            sample with the failure ``sample.undecodable`` can be left out.
        """
        raise NotImplementedError

    def append_all(self, lot: Lot, contents: Contents) -> None:
        """Append several samples, whose parts have the planned lengths; none can fail."""
        raise NotImplementedError

    def append_streamed(self, sample: PlannedSample, source: Readable) -> Failure | None:
        """Read and append a sample that is too large to be kept in memory.

        `larder.shards.reading.large.stream` reads a part in buffers. A format that cannot write a
        value in pieces joins the buffers, as here, and holds one such sample at a time.

        Returns:
            The failure of `append`, before anything was written.

        Raises:
            UnreadablePartError: An object differs from the plan or cannot be read. The shard is
                discarded, because a part of the sample has been written.
        """
        bodies = []
        for part in sample.parts:
            data = b"".join(stream(source, part))
            bodies.append(Body(data, google_crc32c.value(data)))
        return self.append(sample, bodies)

    def finish(self) -> Spool:
        """Write the end of the shard, and return its index rows."""
        return self._rows.finish()

    def close(self) -> None:
        """Release resources that other shards may wait for, even if the shard is unfinished."""

    def _put(self, data: Buffer) -> None:
        self._output.append([data], len(data))

    def _put_all(self, buffers: Iterable[bytes]) -> int:
        """Write buffers in order; return their CRC-32C."""
        crc32c = 0
        for buffer in buffers:
            crc32c = google_crc32c.extend(crc32c, buffer)
            self._put(buffer)
        return crc32c


class ShardFormat:
    """A format of shards. Instances do not change and are used by many threads.

    docs/design/004-growth.md lists what a new ``version`` makes again.

    Attributes:
        version: Increase this number when the same samples give other bytes. New segments have the
            new version, and earlier segments stay. So reading methods (`heads`, `beside`, `open`,
            the indexes) support every version; an instance has the version of its shards, which
            `larder.shards.formats.shard_format` sets after ``__init__``.
        oldest_kept: The earliest version that is kept. Increase this number only if earlier shards
            have a fault, or if readers of a split cannot read both versions. Then the next run
            packs earlier shards again.
        library: A library with its release, if the bytes depend on it; part of segment IDs.
        suffix: The end of shards' names, with one dot: a clean leaves other names alone.
        counted: Whether names contain the number of shards, as in ``-00000-of-00950``.
        sizes_known: Whether `sample_sizes` and ``empty_bytes`` are exact. Otherwise they are
            estimates: they decide how many samples a shard gets, and are never compared with the
            written bytes.
        empty_bytes: Bytes of all files of a shard without samples.
        surveys: Whether the format needs facts about all samples before the first shard.
        numbered: Whether records have numbers, counted on from
            `larder.config.shape.FormatOptions.first_record`.
        indexes: Index files for other readers of the format, one of each kind for every shard.
            They are not among the shards; see `larder.versions.layout.reader_index_key`.
        split_indexes: Index files of each split, which belong to a version.
        framed: Whether a shard consists only of parts in the order of the index, each after the
            header from `heads`, with ``empty_bytes`` at the end.
    """

    version: int = 1
    oldest_kept: int = 1
    library: str = ""
    suffix: str
    counted: bool = False
    sizes_known: bool = True
    empty_bytes: int = 0
    surveys: bool = False
    numbered: bool = False
    indexes: Sequence[ReaderIndex] = ()
    split_indexes: Sequence[SplitIndex] = ()
    framed: bool = False

    def __init__(self, options: FormatOptions) -> None:
        """Make the format from the options in the document of a segment."""

    def survey(self, batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
        """Return a segment's `larder.config.shape.FormatOptions.layout`, if the format ``surveys``.

        Args:
            batches: Rows of `larder.manifest.schemas.SAMPLE_ORDER`: all samples of the segment.
            before: The layout of the segments next to this one, if any exist.

        Raises:
            ConfigError: ``config.invalid_value``: a sample that the format cannot store, by name.
        """
        raise NotImplementedError

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Return the bytes that each sample takes in all files of a shard.

        Work on columns, not row by row: a million samples are planned in seconds. An estimate is at
        least one byte for each sample.

        Args:
            batch: Rows of `larder.manifest.schemas.SAMPLE_ORDER`.

        Raises:
            ObjectError: ``object.bad_key``: a name that the format cannot store.
        """
        raise NotImplementedError

    def shard_name(self, stem: str, index: int, count: int) -> str:
        """Return the name of a shard, which is also the name of its first file.

        Args:
            stem: Dataset and split, such as ``imagenet-train``.
            index: Number of the shard in the split, counted on from segment to segment.
            count: One more than the number of the segment's last shard if the format is
                ``counted``, otherwise 0.
        """
        number = f"{index:05d}-of-{count:05d}" if self.counted else f"{index:06d}"
        return f"{stem}-{number}{self.suffix}"

    def file_names(self, name: str) -> Sequence[str]:
        """Return the names of all files of a shard; the first is the shard's name."""
        return (name,)

    def heads(self, names: Sequence[str], sizes: Sizes) -> tuple[Sequence[bytes], Sizes]:
        """Return each part's header in a ``framed`` shard, and how many bytes follow its content.

        Args:
            names: The keys of the samples with the extensions of the parts.
            sizes: The lengths of the contents.

        Raises:
            ObjectError: ``object.bad_key``: a name that the format cannot store.
        """
        raise NotImplementedError

    def beside(self, samples: Iterable[IndexedSample], first: int) -> Sequence[bytes]:
        """Return the contents of a shard's files after the first, made from the samples.

        Args:
            samples: The samples of the shard, in order.
            first: Number of the segment's samples that were planned for earlier shards.
        """
        return ()

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ShardWriter:
        """Begin a shard; ``outputs`` are for its files, in the order of `file_names`."""
        raise NotImplementedError

    def open(self, store: Readable, key: str) -> SampleReader:
        """Open a shard to read samples back, using only ``get`` and ``open`` of the store.

        Cache builds use this reader. Growth also uses it to pack samples again, unless the index
        has the offsets of their parts. This implementation serves formats that store all parts as
        they are. Unless a format is ``framed``, its reader compares the whole index entry with each
        sample that is read with all its parts.

        Args:
            store: The store of the shard.
            key: The key of the first file; the other files are next to it.

        Raises:
            DamageError: The shard is damaged.
            LarderError: An error of the store.
        """
        return PartReader(store, key)
