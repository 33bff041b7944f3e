"""Samples in the index of a version, and the protocol for reading samples back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import google_crc32c

from larder.errors import DamageError
from larder.samples.arrow_columns import column_structs, column_values, named_tuples

if TYPE_CHECKING:
    import pyarrow as pa


class IndexedPart(NamedTuple):
    """A part in a shard: fields of ``parts`` in `larder.manifest.schemas.PACKED_SAMPLE`."""

    ext: str
    offset: int | None
    length: int
    crc32c: int


class IndexedSample(NamedTuple):
    """A sample in a shard: columns of `larder.manifest.schemas.PACKED_SAMPLE`."""

    key: str
    shard: str
    offset: int
    length: int
    label: int | None
    parts: tuple[IndexedPart, ...]

    @property
    def in_ranges(self) -> bool:
        """Whether all parts are ranges of the shard; else the format's reader is needed."""
        return None not in [part.offset for part in self.parts]


class Sample(NamedTuple):
    """A sample, with the number of its class, and the contents of its parts by extension.

    The label, if it has one, is also the part ``cls``.
    """

    key: str
    label: int | None
    parts: Mapping[str, bytes]


class SampleReader(Protocol):
    """A reader of samples from one shard, in any format; a context manager."""

    @property
    def url(self) -> str:
        """The shard's URL, for errors."""

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> Mapping[str, bytes]:
        """Read parts of a sample; the label is the part ``cls``.

        Samples must be read in the order of the shard; any sample may be skipped.

        Args:
            sample: The sample.
            parts: Some of ``sample.parts``, in their order; all parts if None.

        Returns:
            The content of each part, by extension.

        Raises:
            DamageError: ``damage.record``: a part's CRC-32C differs from the index;
                ``damage.size``: the shard ends too early; ``damage.manifest``: the samples are not
                in order, or the index lists a part that the shard lacks.
            LarderError: An error of the store.
        """

    def close(self) -> None: ...

    def __enter__(self) -> SampleReader: ...

    def __exit__(self, *_: object) -> None: ...


def check_part(part: IndexedPart, data: bytes, sample: IndexedSample, url: str) -> bytes:
    """Return the content of a part; raise ``damage.record`` if its checksum differs."""
    if google_crc32c.value(data) != part.crc32c:
        where = part_place(url, sample, part.ext)
        raise DamageError("damage.record", "its CRC-32C differs from the index", where=where)
    return data


def part_place(url: str, sample: IndexedSample, ext: str) -> str:
    """Return a part's place for errors: the URL of the shard and the name of the part."""
    return f"{url}: {sample.key}.{ext}"


def read_index(batches: Iterable[pa.RecordBatch]) -> Iterator[IndexedSample]:
    """Yield the samples of record batches of `larder.manifest.schemas.INDEXED`, in order."""
    for batch in batches:
        heads = [column_values(batch.column(name)) for name in IndexedSample._fields[:-1]]
        parts = column_structs(batch.column("parts"), IndexedPart._fields, IndexedPart)
        yield from named_tuples(IndexedSample, *heads, parts)
