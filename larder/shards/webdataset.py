"""Samples as members of a tar archive: what WebDataset's readers take.

A part is a member ``KEY.EXT``; a label is the member ``KEY.cls``, its ASCII decimal digits.
Members of a sample stand together, sorted by extension. Format: "The WebDataset Format", in that
library's documentation; the tar bytes are those of `larder.shards.tar`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

import google_crc32c
import pyarrow as pa

from larder.errors import Failure, ObjectError
from larder.shards import tar
from larder.shards.fetch import Body, stream
from larder.shards.model import LABEL_EXT, Part, Sample, label_bytes
from larder.shards.output import HashedOutput
from larder.shards.rows import RowColumns
from larder.store.base import Store

__all__ = ["TarShard"]

_Member = tuple[str, str | None, Body]

_ext_of = attrgetter("ext")


class TarShard:
    """A shard in the making.

    Args:
        output: Where its bytes go.
    """

    def __init__(self, output: HashedOutput) -> None:
        self._output = output
        self._rows = RowColumns()

    def append(self, sample: Sample, bodies: Sequence[Body]) -> None:
        """Append a sample whose parts were read; ``bodies`` stand in the order of its parts."""
        start = offset = self._output.bytes
        pieces: list[bytes] = []
        for ext, source, (data, crc32c) in _members(sample, bodies):
            size = len(data)
            header = tar.member_header(f"{sample.key}.{ext}", size)
            offset += len(header)
            self._rows.add_part(ext, source, offset, size, crc32c)
            pieces += header, data, tar.padding(size)
            offset += size + -size % tar.BLOCK_BYTES
        self._output.append(pieces, offset - start)
        self._rows.add_sample(sample.key, start, offset - start, sample.label)

    def append_streamed(self, sample: Sample, source: Store) -> Failure | None:
        """Read and append a sample a buffer at a time: one that memory should not hold.

        Returns:
            What failed, if an object is not as planned or cannot be read. The shard is then of no
            use, as what was written of the sample cannot be taken back.
        """
        start = self._output.bytes
        members: list[Part | None] = [*sample.parts]
        if sample.label is not None:
            members.insert(_label_place(sample), None)
        for part in members:
            if part is None:
                self._append_label(sample)
                continue
            try:
                self._append_streamed_part(sample.key, part, source)
            except ObjectError as error:
                return Failure.of(part.key, error)
        self._rows.add_sample(sample.key, start, self._output.bytes - start, sample.label)
        return None

    def finish(self) -> tuple[pa.RecordBatch, str]:
        """End the archive: its rows by `larder.shards.model.ROWS`, and its hex SHA-256."""
        self._output.append([tar.END], len(tar.END))
        return self._rows.finish(), self._output.finish()

    def _append_label(self, sample: Sample) -> None:
        assert sample.label is not None
        data, crc32c = _label_body(sample.label)
        size = len(data)
        header = tar.member_header(f"{sample.key}.{LABEL_EXT}", size)
        self._rows.add_part(LABEL_EXT, None, self._output.bytes + len(header), size, crc32c)
        pad = tar.padding(size)
        self._output.append([header, data, pad], len(header) + size + len(pad))

    def _append_streamed_part(self, sample_key: str, part: Part, source: Store) -> None:
        header = tar.member_header(f"{sample_key}.{part.ext}", part.size_bytes)
        self._output.append([header], len(header))
        offset = self._output.bytes
        crc32c = 0
        for buffer in stream(source, part):
            crc32c = google_crc32c.extend(crc32c, buffer)
            self._output.append([buffer], len(buffer))
        pad = tar.padding(part.size_bytes)
        self._output.append([pad], len(pad))
        self._rows.add_part(part.ext, part.key, offset, part.size_bytes, crc32c)


def _members(sample: Sample, bodies: Sequence[Body]) -> list[_Member]:
    """Extension, source and content of every member, sorted by extension."""
    members: list[_Member] = [
        (part.ext, part.key, body) for part, body in zip(sample.parts, bodies, strict=True)
    ]
    if sample.label is not None:
        members.insert(_label_place(sample), (LABEL_EXT, None, _label_body(sample.label)))
    return members


def _label_place(sample: Sample) -> int:
    return bisect_left(sample.parts, LABEL_EXT, key=_ext_of)


@lru_cache(4096)
def _label_body(label: int) -> Body:
    data = label_bytes(label)
    return Body(data, google_crc32c.value(data))
