"""Samples as records of a fixed size: record i of a shard is its bytes from i times the size on.

A record is the contents of the parts, sorted by extension, and the label as a little-endian int64
if the dataset has labels. A shard contains nothing else. So all samples must have the same parts
with the same lengths, such as sensor data or decoded arrays. An index of each split gives the
length and the fields of a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError, DamageError
from larder.manifest.digest import canonical_json
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.shards.formats.format_interface import ShardFormat, ShardWriter, Split
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import PlannedSample, ShardPlan, label_bytes
from larder.shards.reading.fetch import Body
from larder.shards.reading.large import stream
from larder.shards.reading.ranges import RangeReader
from larder.shards.sizes import Sizes, refuse_names, survey_sizes
from larder.store.base import Readable

_LABEL = struct.Struct("<q")


class RecordsFormat(ShardFormat):
    """``shards.format: records``; the layout lists the fields of a record."""

    suffix = ".bin"
    surveys = True

    def __init__(self, options: FormatOptions) -> None:
        layout = options.layout or Layout({}, labelled=False)
        self._layout = _RecordLayout(layout)
        self.split_indexes = (RecordsIndex(layout),)

    def survey(self, batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
        layout = survey_sizes(batches, before)
        if not _RecordLayout(layout).bytes:
            message = "a record would have no bytes"
            hint = "choose another format"
            raise ConfigError("config.invalid_value", message, where="shards.format", hint=hint)
        refuse_names(layout, {"label"} if layout.labelled else (), "a record")
        return layout

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        return np.full(len(batch), self._layout.bytes, np.int64)

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> RecordWriter:
        (output,) = outputs
        return RecordWriter(output, self._layout)

    def open(self, store: Readable, key: str) -> RecordReader:
        return RecordReader(store, key, self._layout)


class RecordsIndex:
    kind = "records"

    def __init__(self, layout: Layout) -> None:
        self._layout = _RecordLayout(layout)

    def content(self, split: Split) -> bytes:
        document = {
            "format": "larder-records-1",
            "dataset": split.dataset,
            "split": split.name,
            "record_bytes": self._layout.bytes,
            "fields": self._layout.fields,
            "records": sum(samples for _, samples in split.shards),
            "shards": [{"key": file.path, "records": samples} for file, samples in split.shards],
        }
        return canonical_json(document) + b"\n"


class _RecordLayout:
    """The place of each part in a record."""

    def __init__(self, layout: Layout) -> None:
        sizes = [size_bytes or 0 for size_bytes in layout.parts.values()]
        *starts, end = accumulate(sizes, initial=0)
        self.offsets = dict(zip(layout.parts, starts, strict=True))
        self.sizes = dict(zip(layout.parts, sizes, strict=True))
        self.label_offset = end
        self.bytes = end + (_LABEL.size if layout.labelled else 0)
        self.fields = [
            {"name": ext, "offset": start, "bytes": size_bytes, "type": "bytes"}
            for ext, start, size_bytes in zip(layout.parts, starts, sizes, strict=True)
        ]
        if layout.labelled:
            label = {"name": "label", "offset": end, "bytes": _LABEL.size, "type": "int64"}
            self.fields.append(label)


class RecordWriter(ShardWriter):
    def __init__(self, output: HashedOutput, layout: _RecordLayout) -> None:
        super().__init__(output)
        self._layout = layout

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> None:
        start = self._output.bytes
        pieces = [body.data for body in bodies]
        if sample.label is not None:
            pieces.append(_LABEL.pack(sample.label))
        self._output.append(pieces, self._layout.bytes)
        self._add_rows(sample, start, [body.crc32c for body in bodies])

    def append_streamed(self, sample: PlannedSample, source: Readable) -> None:
        start = self._output.bytes
        checksums = [self._put_all(stream(source, part)) for part in sample.parts]
        if sample.label is not None:
            self._put(_LABEL.pack(sample.label))
        self._add_rows(sample, start, checksums)

    def _add_rows(self, sample: PlannedSample, start: int, checksums: Sequence[int]) -> None:
        layout = self._layout
        offsets = (start + layout.offsets[part.ext] for part in sample.parts)
        sizes = (layout.sizes[part.ext] for part in sample.parts)
        self._rows.add_parts(sample, (start, layout.bytes), offsets, sizes, checksums)


class RecordReader(RangeReader):
    def __init__(self, store: Readable, key: str, layout: _RecordLayout) -> None:
        super().__init__(store, key)
        self._layout = layout

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        wanted = sample.parts if parts is None else parts
        contents: dict[str, bytes] = {}
        for part in wanted:
            if part.offset is not None:
                found = part.offset - sample.offset, part.length
                if found != (self._layout.offsets.get(part.ext), self._layout.sizes.get(part.ext)):
                    where = part_place(self.url, sample, part.ext)
                    message = "the index has it where records have something else"
                    raise DamageError("damage.manifest", message, where=where)
                data = self.read_range(part.offset, part.length)
                contents[part.ext] = check_part(part, data, sample, self.url)
        for part in wanted:
            if part.offset is None:  # the label, which comes last
                place = sample.offset + self._layout.label_offset
                (label,) = _LABEL.unpack(self.read_range(place, _LABEL.size))
                contents[part.ext] = check_part(part, label_bytes(label), sample, self.url)
        return {part.ext: contents[part.ext] for part in wanted}
