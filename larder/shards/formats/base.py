"""What a format of shards provides: one class in a module of its own, and a line in the registry.

A format knows nothing of stores, splits, receipts or manifests. It says what its shards are called,
how large samples are in them, turns samples into bytes, and reads them back by the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from larder.errors import Failure
from larder.samples.indexed import SampleReader
from larder.shards.fetch import Body
from larder.shards.model import Sample
from larder.shards.output import HashedOutput
from larder.shards.sizes import Sizes
from larder.store.base import Store

__all__ = ["ShardFormat", "ShardWriter"]


class ShardWriter(Protocol):
    """One shard in the making.

    Its bytes follow from the samples alone, and so does every row of its index.
    """

    def append(self, sample: Sample, bodies: Sequence[Body]) -> None:
        """Append a sample that was read.

        Args:
            sample: As planned.
            bodies: The contents of ``sample.parts``, in their order.
        """

    def append_streamed(self, sample: Sample, source: Store) -> Failure | None:
        """Read and append a sample that memory should not hold.

        `larder.shards.fetch.stream` gives a part in buffers. A format that cannot write a value
        before all of it is there joins them, and so holds one such sample at a time.

        Returns:
            What failed, if an object is not as planned or cannot be read. The shard is then of no
            use, as what was written of the sample cannot be taken back.
        """

    def finish(self) -> pa.RecordBatch:
        """Append what ends the shard.

        Returns:
            Its rows, by `larder.shards.model.ROWS`; `larder.shards.rows.IndexRows` collects them.
        """


class ShardFormat(Protocol):
    """A format of shards. It has no state: one instance serves all threads."""

    @property
    def version(self) -> int:
        """Counts up when the same samples make other bytes: it enters the segment's ID."""

    @property
    def sizes_known(self) -> bool:
        """Whether shards are as long as `sample_sizes` and `empty_bytes` say, to the byte.

        If not, they are estimates: they decide how many samples a shard takes, and nothing else.
        """

    @property
    def empty_bytes(self) -> int:
        """Length of a shard without samples, over all of its files."""

    @property
    def counted(self) -> bool:
        """Whether names say how many shards there are, as in ``-00000-of-00950``."""

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Bytes that each sample takes in a shard, over all of its files.

        By columns, not row by row: a million samples are planned in seconds. A format that
        cannot know takes `larder.shards.sizes.content_sizes`.

        Args:
            batch: Rows of `larder.manifest.schemas.SAMPLE_ORDER`.

        Raises:
            ObjectError: ``object.bad_key``: a name that the format cannot hold.
        """

    def shard_name(self, stem: str, index: int, count: int) -> str:
        """Name of a shard, which is that of its first file.

        The only digits that differ between the shards of a split are those of ``index``, padded.

        Args:
            stem: Dataset and split, such as ``imagenet-train``.
            index: Number of the shard within the split, from 0.
            count: Shards of the split if the format is `counted`, else 0.
        """

    def file_names(self, name: str) -> Sequence[str]:
        """Names of all files of the shard ``name``, its own first."""

    def writer(self, outputs: Sequence[HashedOutput]) -> ShardWriter:
        """Begin a shard; ``outputs`` take the bytes of its files, in the order of `file_names`."""

    def open(self, store: Store, key: str) -> SampleReader:
        """Open a shard to read samples back.

        Nothing but ``get`` and ``open`` of the store may be used.

        Args:
            store: Holds the shard.
            key: Of its first file; the others stand beside it.
        """
