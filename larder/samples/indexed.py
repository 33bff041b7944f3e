"""Samples as the index of a version names them, and how their parts are read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import google_crc32c

from larder.errors import DamageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["IndexedPart", "IndexedSample", "SampleReader", "check_part", "read_index"]


class IndexedPart(NamedTuple):
    """One part of a sample in a shard: an entry of ``parts`` in `larder.manifest.schemas.SAMPLES`.

    Attributes:
        ext: Its extension.
        offset: Where its bytes stand as they are; None where the format keeps them otherwise.
        length: Of its content, bytes.
        crc32c: Of its content.
    """

    ext: str
    offset: int | None
    length: int
    crc32c: int


class IndexedSample(NamedTuple):
    """A row of `larder.manifest.schemas.SAMPLES`, as far as it takes to read the sample."""

    key: str
    shard: str
    offset: int
    length: int
    label: int | None
    parts: tuple[IndexedPart, ...]


class SampleReader(Protocol):
    """Reads samples back from one shard; a context manager. The formats of shards have them."""

    @property
    def url(self) -> str:
        """The shard's URL, for errors."""

    def read(self, sample: IndexedSample) -> Mapping[str, bytes]:
        """The contents of the parts that ``sample`` names, by extension; that of a label too.

        Samples are read in the order of the shard, any of them left out.

        Raises:
            DamageError: ``damage.record``: a part's CRC-32C is not that of the index;
                ``damage.size``: the shard ends earlier; ``damage.manifest``: the index goes back,
                or names what is not there.
            LarderError: Whatever the store raises.
        """

    def __enter__(self) -> SampleReader: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def check_part(part: IndexedPart, data: bytes, where: str) -> bytes:
    """The content of a part, if it is what the index says.

    Args:
        part: Its entry.
        data: What was read.
        where: Shard and part, for the error.

    Raises:
        DamageError: ``damage.record``.
    """
    if google_crc32c.value(data) != part.crc32c:
        raise DamageError("damage.record", "its CRC-32C is not that of the index", where=where)
    return data


def read_index(batches: Iterable[pa.RecordBatch]) -> Iterator[IndexedSample]:
    """The samples of record batches of `larder.manifest.schemas.SAMPLES`, in their order."""
    for batch in batches:
        lists = batch.column("parts")
        entries = lists.flatten()
        columns = (_values(entries.field(name)) for name in IndexedPart._fields)
        parts = tuple(map(IndexedPart, *columns))
        offsets = lists.offsets.to_numpy()
        ranges = pairwise((offsets - offsets[0]).tolist())
        heads = [_values(batch.column(name)) for name in IndexedSample._fields[:-1]]
        slices = (parts[start:stop] for start, stop in ranges)
        yield from map(IndexedSample, *heads, slices)


def _values(column: pa.Array) -> list[Any]:
    # By way of numpy, as to_pylist() makes an Arrow scalar of every value: ten times as slow.
    if column.null_count:
        return list(column.to_pylist())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values
