"""Samples as members of a tar archive: what WebDataset's readers take.

A part is a member ``KEY.EXT``; a label is the member ``KEY.cls``, its ASCII decimal digits.
Members of a sample stand together, sorted by extension. Format: "The WebDataset Format", in that
library's documentation; the tar bytes are those of `larder.shards.tar`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter

import google_crc32c
import pyarrow as pa

from larder.errors import Failure, ObjectError
from larder.shards import tar
from larder.shards.fetch import Body, stream
from larder.shards.model import LABEL_EXT, Sample, label_bytes
from larder.shards.output import HashedOutput
from larder.shards.rows import IndexRows, PartRow
from larder.store.base import Readable

__all__ = ["TarShard"]

_Member = tuple[str, str | None, Body]
_StreamedMember = tuple[str, str | None, int, Iterable[bytes]]

_ext_of = attrgetter("ext")


class TarShard:
    """A shard in the making.

    Args:
        output: Where its bytes go.
    """

    def __init__(self, output: HashedOutput) -> None:
        self._output = output
        self._rows = IndexRows()

    def append(self, sample: Sample, bodies: Sequence[Body]) -> None:
        """Append a sample whose parts were read; ``bodies`` stand in the order of its parts."""
        start = offset = self._output.bytes
        key, label = sample.key, sample.label
        pieces: list[bytes] = []
        rows: list[PartRow] = []
        for ext, source, (data, crc32c) in _members(sample, bodies):
            size = len(data)
            header = tar.member_header(f"{key}.{ext}", size)
            offset += len(header)
            rows.append((ext, source, offset, size, crc32c))
            pad = tar.padding(size)
            pieces += header, data, pad
            offset += size + len(pad)
        self._output.append(pieces, offset - start)
        self._rows.add((key, start, offset - start, label), rows)

    def append_streamed(self, sample: Sample, source: Readable) -> Failure | None:
        """Read and append a sample a buffer at a time: one that memory should not hold.

        Returns:
            What failed, if an object is not as planned or cannot be read. The shard is then of no
            use, as what was written of the sample cannot be taken back.
        """
        start = self._output.bytes
        rows: list[PartRow] = []
        for ext, key, size_bytes, buffers in _streamed_members(sample, source):
            try:
                offset, crc32c = self._append_stream(f"{sample.key}.{ext}", size_bytes, buffers)
            except ObjectError as error:
                return Failure.of(key or sample.key, error)
            rows.append((ext, key, offset, size_bytes, crc32c))
        self._rows.add((sample.key, start, self._output.bytes - start, sample.label), rows)
        return None

    def finish(self) -> tuple[pa.RecordBatch, str]:
        """End the archive: its rows by `larder.shards.model.ROWS`, and its hex SHA-256."""
        self._output.append([tar.END], len(tar.END))
        return self._rows.finish(), self._output.finish()

    def _append_stream(
        self, name: str, size_bytes: int, buffers: Iterable[bytes]
    ) -> tuple[int, int]:
        """Offset and crc32c of the data."""
        header = tar.member_header(name, size_bytes)
        self._output.append([header], len(header))
        offset = self._output.bytes
        crc32c = 0
        for buffer in buffers:
            crc32c = google_crc32c.extend(crc32c, buffer)
            self._output.append([buffer], len(buffer))
        pad = tar.padding(size_bytes)
        self._output.append([pad], len(pad))
        return offset, crc32c


def _members(sample: Sample, bodies: Sequence[Body]) -> list[_Member]:
    """Extension, source and content of every member, sorted by extension."""
    members: list[_Member] = [
        (part.ext, part.key, body) for part, body in zip(sample.parts, bodies, strict=True)
    ]
    if sample.label is not None:
        members.insert(_label_place(sample), (LABEL_EXT, None, _label_body(sample.label)))
    return members


def _streamed_members(sample: Sample, source: Readable) -> list[_StreamedMember]:
    """As `_members`; nothing is read before the buffers are iterated over."""
    members: list[_StreamedMember] = [
        (part.ext, part.key, part.size_bytes, stream(source, part)) for part in sample.parts
    ]
    if sample.label is not None:
        data = _label_body(sample.label).data
        members.insert(_label_place(sample), (LABEL_EXT, None, len(data), (data,)))
    return members


def _label_place(sample: Sample) -> int:
    return bisect_left(sample.parts, LABEL_EXT, key=_ext_of)


@lru_cache(4096)
def _label_body(label: int) -> Body:
    data = label_bytes(label)
    return Body(data, google_crc32c.value(data))
