"""Samples as the index of a version describes them, and the protocol for reading them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import google_crc32c

from larder.errors import DamageError
from larder.samples.columns import column_structs, column_values, named_tuples

if TYPE_CHECKING:
    import pyarrow as pa


class IndexedPart(NamedTuple):
    """One part of a sample in a shard: an entry of ``parts`` in `larder.shards.model.ROWS`.

    The offset is in the shard's first file; None if the format stores the content in another form.
    """

    ext: str
    offset: int | None
    length: int
    crc32c: int


class IndexedSample(NamedTuple):
    """What is needed to read a sample: its key, its shard, and what `larder.shards.model.ROWS` has
    of it.
    """

    key: str
    shard: str
    offset: int
    length: int
    label: int | None
    parts: tuple[IndexedPart, ...]


class Sample(NamedTuple):
    """A sample.

    Attributes:
        key: Its key.
        label: The number of its class; None without labels.
        parts: The content of each part by extension, with the label as ``cls``.
    """

    key: str
    label: int | None
    parts: Mapping[str, bytes]


class SampleReader(Protocol):
    """Reads samples back from one shard, in any format; a context manager."""

    @property
    def url(self) -> str:
        """The shard's URL, for errors."""

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> Mapping[str, bytes]:
        """Read parts of a sample; the label is the part ``cls``.

        Samples have to be read in the order of the shard; any of them may be skipped.

        Args:
            sample: The sample.
            parts: Which of ``sample.parts`` to read, in their order; all of them if None.

        Returns:
            The content of each part, by extension.

        Raises:
            DamageError: ``damage.record``: a part's CRC-32C differs from that of the index;
                ``damage.size``: the shard ends too early; ``damage.manifest``: the samples are not
                in order, or the index lists a part that the shard does not have.
            LarderError: An error of the store.
        """

    def close(self) -> None:
        """Close the shard."""

    def __enter__(self) -> SampleReader:
        """Return the reader itself."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the shard."""


def check_part(part: IndexedPart, data: bytes, sample: IndexedSample, url: str) -> bytes:
    """The content of a part, compared with its checksum: ``damage.record`` if it differs."""
    if google_crc32c.value(data) != part.crc32c:
        where = part_place(url, sample, part.ext)
        raise DamageError("damage.record", "its CRC-32C differs from the index", where=where)
    return data


def part_place(url: str, sample: IndexedSample, ext: str) -> str:
    """Where a part is, for errors: the URL of the shard and the name of the part."""
    return f"{url}: {sample.key}.{ext}"


def read_index(batches: Iterable[pa.RecordBatch]) -> Iterator[IndexedSample]:
    """The samples of record batches of `larder.versions.rows.INDEXED`, in their order."""
    for batch in batches:
        heads = [column_values(batch.column(name)) for name in IndexedSample._fields[:-1]]
        parts = column_structs(batch.column("parts"), IndexedPart._fields, IndexedPart)
        yield from named_tuples(IndexedSample, *heads, parts)
