"""The protocol of shard formats: one class in a module of its own, and one line in the registry.

A format names shards and their files, says how large samples are in them, writes samples, and reads
them back by their index entries. It does not deal with splits, packing, receipts or manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from larder.config.shape import Layout
from larder.errors import Failure
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedSample, SampleReader
from larder.shards.indexes import ReaderIndex, SplitIndex
from larder.shards.model import Sample, ShardPlan
from larder.shards.output import HashedOutput
from larder.shards.reading.fetch import Body, Contents
from larder.shards.sizes import Sizes
from larder.store.base import Readable


class ShardWriter(Protocol):
    """Writes one shard. Its bytes and index rows must depend on nothing but the samples."""

    def append(self, sample: Sample, bodies: Sequence[Body]) -> Failure | None:
        """Append a sample whose parts are in memory.

        Args:
            sample: The planned sample.
            bodies: The contents of ``sample.parts``, in the same order.

        Returns:
            The failure, if the format cannot store these contents; nothing was written then. With
            the code ``sample.undecodable`` the sample can be left out.
        """

    def append_streamed(self, sample: Sample, source: Readable) -> Failure | None:
        """Read and append a sample that is too large to be kept in memory.

        `larder.shards.reading.large.stream` reads a part in buffers. A format that cannot write a
        value in pieces has to join them; it holds one such sample at a time.

        Returns:
            The failure, if an object differs from the plan or cannot be read. The shard is then
            discarded, as a part of the sample has been written; except with the code
            ``sample.undecodable``, with which nothing was written, as by `append`.
        """

    def finish(self) -> Spool:
        """Write the end of the shard.

        Returns:
            Its index rows, of schema `larder.shards.model.ROWS`, which
            `larder.shards.index_rows.IndexRows` collects.
        """


@runtime_checkable
class LotWriter(Protocol):
    """A writer that appends several samples faster than one by one, which is optional."""

    def append_all(self, samples: Sequence[Sample], contents: Contents) -> None:
        """The same as `ShardWriter.append` of each sample; none of them can fail.

        Args:
            samples: The planned samples.
            contents: The contents of their parts.
        """


@runtime_checkable
class CheckingWriter(Protocol):
    """A writer of a format that cannot store all contents."""

    def check(self, sample: Sample, bodies: Sequence[Body]) -> Failure | None:
        """What `ShardWriter.append` would return; nothing is written.

        It is asked about samples that are not written because the shard has failed already, so
        that all failures are reported at once.
        """

    def check_streamed(self, sample: Sample, source: Readable) -> Failure | None:
        """What `ShardWriter.append_streamed` would return before it has written anything."""


@runtime_checkable
class ClosingWriter(Protocol):
    """A writer that keeps others waiting for what it holds."""

    def close(self) -> None:
        """Give it up, whether or not the shard is finished."""


class ShardFormat(Protocol):
    """A format of shards, made from `larder.config.shape.FormatOptions`.

    Instances do not change and are used by many threads.
    """

    @property
    def version(self) -> int:
        """Has to be increased when the same samples give other bytes; it is part of segment IDs."""

    @property
    def sizes_known(self) -> bool:
        """Whether `sample_sizes` and `empty_bytes` are exact.

        Otherwise they are estimates, which decide how many samples a shard gets. They are never
        compared with what was written.
        """

    @property
    def empty_bytes(self) -> int:
        """Bytes of all files of a shard without samples."""

    @property
    def counted(self) -> bool:
        """Whether names contain the number of shards, as in ``-00000-of-00950``."""

    @property
    def indexes(self) -> Sequence[ReaderIndex]:
        """The index files that other readers of the format have, one of each for every shard.

        They are not among the shards; see `larder.versions.layout.reader_index_key`.
        """

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Bytes that each sample takes in all files of a shard.

        Has to work on columns, not row by row: a million samples are planned in seconds. A format
        that cannot know sizes in advance uses `larder.shards.sizes.content_sizes`.

        Args:
            batch: Rows of `larder.manifest.schemas.SAMPLE_ORDER`.

        Raises:
            ObjectError: ``object.bad_key``: a name that the format cannot store.
        """

    def shard_name(self, stem: str, index: int, count: int) -> str:
        """The name of a shard, which is also the name of its first file.

        The names of a split's shards may differ in one number only: ``index``, padded with zeros.

        Args:
            stem: Dataset and split, such as ``imagenet-train``.
            index: Number of the shard within the split, which goes on from segment to segment.
            count: The number after that of the segment's last shard if the format is `counted`,
                otherwise 0.
        """

    def file_names(self, name: str) -> Sequence[str]:
        """The names of all files of a shard, beginning with its own."""

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ShardWriter:
        """Begin a shard.

        Args:
            outputs: For its files, in the order of `file_names`.
            plan: The shard.
        """

    def open(self, store: Readable, key: str) -> SampleReader:
        """Open a shard to read samples back, using only ``get`` and ``open`` of the store.

        This is how caches are built, and how growth packs samples again, unless the index has the
        offsets of their parts: then these are read directly.

        Args:
            store: The store of the shard.
            key: The key of its first file; the other files are next to it.

        Raises:
            DamageError: The shard is damaged.
            LarderError: An error of the store.
        """


@runtime_checkable
class SurveyingFormat(Protocol):
    """A format that has to know something of all samples before it writes the first shard."""

    def survey(self, batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
        """The `larder.config.shape.FormatOptions.layout` of a segment.

        Args:
            batches: Rows of `larder.manifest.schemas.SAMPLE_ORDER`: all samples of the segment.
            before: The layout of the segments next to it, if there are any.

        Raises:
            ConfigError: ``config.invalid_value``: a sample that the format cannot store, by name.
        """


@runtime_checkable
class SplitIndexed(Protocol):
    """A format of which other readers have an index of each split, which belongs to a version."""

    @property
    def split_indexes(self) -> Sequence[SplitIndex]:
        """The kinds of these files."""


@runtime_checkable
class Locating(Protocol):
    """A format whose index has no offsets of parts, but which stores large ones as they are."""

    def locate(self, store: Readable, key: str, sample: IndexedSample) -> IndexedSample | None:
        """The entry of a sample in the index, with the offsets of the parts of its objects.

        Args:
            store: The store of the shard.
            key: The key of its first file.
            sample: The entry in the index.

        Returns:
            None if the parts are stored in another form.

        Raises:
            DamageError: The shard is damaged.
            LarderError: An error of the store.
        """
