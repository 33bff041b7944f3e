"""What a shard format is: a class in a module of its own, and one line in the registry.

A format names shards and their files, says how large samples are in them, writes samples, and reads
them back by their index entries. It does not deal with splits, packing, receipts or manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import google_crc32c
import pyarrow as pa

from larder.config.shape import FormatOptions, Layout
from larder.errors import Failure
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedSample, SampleReader
from larder.shards.index_rows import IndexRows
from larder.shards.indexes import ReaderIndex, SplitIndex
from larder.shards.model import PlannedSample, ShardPlan
from larder.shards.output import HashedOutput
from larder.shards.reading.fetch import Body, Contents
from larder.shards.reading.large import read_streamed
from larder.shards.reading.ranges import PartReader
from larder.shards.sizes import Sizes
from larder.store.base import Buffer, Readable


class ShardWriter:
    """Writes one shard. Its bytes and index rows must depend on nothing but the samples.

    Attributes:
        lots: Whether it appends several samples faster than one by one.
    """

    lots = False

    def __init__(self, output: HashedOutput) -> None:
        self._output = output
        self._rows = IndexRows()

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> Failure | None:
        """Append a sample whose parts are in memory.

        Args:
            sample: The planned sample.
            bodies: The contents of ``sample.parts``, in the same order.

        Returns:
            The failure, if the format cannot store these contents; nothing was written then. With
            the code ``sample.undecodable`` the sample can be left out.
        """
        raise NotImplementedError

    def append_all(self, samples: Sequence[PlannedSample], contents: Contents) -> None:
        """The same for several samples, none of which can fail, if it appends ``lots``."""
        raise NotImplementedError

    def append_streamed(self, sample: PlannedSample, source: Readable) -> Failure | None:
        """Read and append a sample that is too large to be kept in memory.

        `larder.shards.reading.large.stream` reads a part in buffers. A format that cannot write a
        value in pieces joins them, as here: it holds one such sample at a time.

        Returns:
            The failure, if an object differs from the plan or cannot be read. The shard is then
            discarded, as a part of the sample has been written; except with the code
            ``sample.undecodable``, with which nothing was written, as by `append`.
        """
        bodies = read_streamed(source, sample)
        return bodies if isinstance(bodies, Failure) else self.append(sample, bodies)

    def finish(self) -> Spool:
        """Write the end of the shard, and return its index rows."""
        return self._rows.finish()

    def close(self) -> None:
        """Give up what other shards may be waiting for, whether or not the shard is finished."""

    def _put(self, data: Buffer) -> None:
        self._output.append([data], len(data))

    def _put_all(self, buffers: Iterable[bytes]) -> int:
        """Write buffers one after the other; returns their CRC-32C."""
        crc32c = 0
        for buffer in buffers:
            crc32c = google_crc32c.extend(crc32c, buffer)
            self._put(buffer)
        return crc32c


class ShardFormat:
    """A format of shards. Instances do not change and are used by many threads.

    Attributes:
        version: Has to be increased when the same samples give other bytes; it is part of segment
            IDs.
        suffix: The end of shards' names.
        counted: Whether names contain the number of shards, as in ``-00000-of-00950``.
        sizes_known: Whether `sample_sizes` and ``empty_bytes`` are exact. Otherwise they are
            estimates, which decide how many samples a shard gets. They are never compared with
            what was written.
        empty_bytes: Bytes of all files of a shard without samples.
        surveys: Whether it has to know something of all samples before it writes the first shard.
        indexes: The index files that other readers of the format have, one of each for every
            shard. They are not among the shards; see `larder.versions.layout.reader_index_key`.
        split_indexes: Those of each split, which belong to a version.
        framed: Whether a shard is nothing but parts in the order of the index, each after the
            header that `heads` gives, and ``empty_bytes`` at its end.
    """

    version: int = 1
    suffix: str
    counted: bool = False
    sizes_known: bool = True
    empty_bytes: int = 0
    surveys: bool = False
    indexes: Sequence[ReaderIndex] = ()
    split_indexes: Sequence[SplitIndex] = ()
    framed: bool = False

    def __init__(self, options: FormatOptions) -> None:
        """Make it from its options, which are in the document of a segment."""

    def survey(self, batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
        """The `larder.config.shape.FormatOptions.layout` of a segment, if the format ``surveys``.

        Args:
            batches: Rows of `larder.manifest.schemas.SAMPLE_ORDER`: all samples of the segment.
            before: The layout of the segments next to it, if there are any.

        Raises:
            ConfigError: ``config.invalid_value``: a sample that the format cannot store, by name.
        """
        raise NotImplementedError

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Bytes that each sample takes in all files of a shard.

        Has to work on columns, not row by row: a million samples are planned in seconds. The
        estimate of a format that cannot know sizes in advance is at least a byte for each sample.

        Args:
            batch: Rows of `larder.manifest.schemas.SAMPLE_ORDER`.

        Raises:
            ObjectError: ``object.bad_key``: a name that the format cannot store.
        """
        raise NotImplementedError

    def shard_name(self, stem: str, index: int, count: int) -> str:
        """The name of a shard, which is also the name of its first file.

        Args:
            stem: Dataset and split, such as ``imagenet-train``.
            index: Number of the shard within the split, which goes on from segment to segment.
            count: The number after that of the segment's last shard if the format is ``counted``,
                otherwise 0.
        """
        number = f"{index:05d}-of-{count:05d}" if self.counted else f"{index:06d}"
        return f"{stem}-{number}{self.suffix}"

    def file_names(self, name: str) -> Sequence[str]:
        """The names of all files of a shard, beginning with its own."""
        return (name,)

    def heads(self, names: Sequence[str], sizes: Sizes) -> tuple[Sequence[bytes], Sizes]:
        """The header of each part of a ``framed`` shard, and how many bytes follow its content.

        Args:
            names: The keys of the samples with the extensions of the parts.
            sizes: The lengths of the contents.

        Raises:
            ObjectError: ``object.bad_key``: a name that the format cannot store.
        """
        raise NotImplementedError

    def beside(self, samples: Iterable[IndexedSample], first: int) -> Sequence[bytes]:
        """The contents of a shard's files after the first, which follow from its samples.

        Args:
            samples: The samples of the shard, in order.
            first: How many samples of the segment were planned for the shards before it.
        """
        return ()

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ShardWriter:
        """Begin a shard; ``outputs`` are for its files, in the order of `file_names`."""
        raise NotImplementedError

    def open(self, store: Readable, key: str) -> SampleReader:
        """Open a shard to read samples back, using only ``get`` and ``open`` of the store.

        This is how caches are built, and how growth packs samples again, unless the index has the
        offsets of their parts: then these are read directly. The one here is for formats that store
        all parts as they are. Unless a format is ``framed``, its reader compares everything that
        the index says of a sample which is read with all its parts.

        Args:
            store: The store of the shard.
            key: The key of its first file; the other files are next to it.

        Raises:
            DamageError: The shard is damaged.
            LarderError: An error of the store.
        """
        return PartReader(store, key)
