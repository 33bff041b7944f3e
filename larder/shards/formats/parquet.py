"""Samples as rows of a Parquet file, as Hugging Face ``datasets``, DuckDB or Spark read them.

Columns: ``key``, a string; ``label``, an int64, if the dataset has labels; and a column for every
extension in the segment, under its name, with the part's content, null if a sample lacks the part.
Nothing is compressed and there are no dictionaries: images are compressed already, and sizes can be
planned. A reader holds one row group of about 8 MiB at once. Every page has a checksum.

The bytes depend on the release of pyarrow, which is part of segment IDs.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from larder.config.shape import FormatOptions, Layout
from larder.disk import disk_errors, limit_error
from larder.errors import ConfigError, DamageError
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.samples.naming import LABEL_EXT
from larder.shards.formats.format_interface import ShardFormat, ShardWriter
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import PlannedSample, ShardPlan, label_bytes
from larder.shards.reading.large import giving_back, mapped_content, stream
from larder.shards.sizes import Sizes, refuse_names, sum_parts, survey_parts
from larder.store import object_url
from larder.store.base import Closing, Readable
from larder.store.seekable import ObjectFile

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW_GROUP_BYTES = 8 << 20
"""Most bytes of parts in a row group, unless a single sample has more."""

VALUE_BYTES = 2**31 - 2**20
"""Maximum length of a part: pyarrow counts the bytes of a page in 31 bits."""

_KEY, _LABEL = "key", "label"
_VALUES = pa.binary()

_LENGTH_BYTES = 4
_PIECE_BYTES = 1 << 20
_PACKED_SAMPLES = 2_048

_Content = bytes | mmap.mmap

_one_large = threading.Lock()
"""The lock of the shard in this process that has a large row group in memory.

The shard holds the lock until its next row group is written, because pyarrow keeps the page.
"""


class ParquetFormat(ShardFormat):
    """``shards.format: parquet``; the layout lists the columns."""

    suffix = ".parquet"
    counted = True
    sizes_known = False
    surveys = True
    library = f"pyarrow {pa.__version__}"

    def __init__(self, options: FormatOptions) -> None:
        self._layout = options.layout or Layout({}, labelled=False)
        self.empty_bytes = _empty_bytes(tuple(self._layout.parts), self._layout.labelled)

    def survey(self, batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
        layout = survey_parts(batches, before)
        names = {_KEY, _LABEL} if layout.labelled else {_KEY}
        refuse_names(layout, names, "a Parquet file")
        return layout

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        parts = batch.column("parts")
        entries = parts.flatten()
        _refuse_long(entries)
        sizes = sum_parts(parts, entries.field("size_bytes").to_numpy() + _LENGTH_BYTES)
        sizes += pc.binary_length(batch.column("key")).to_numpy() + _LENGTH_BYTES
        sizes += 8 * batch.column("label").is_valid().to_numpy(zero_copy_only=False)
        return sizes

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ParquetRows:
        (output,) = outputs
        return ParquetRows(output, self._layout)

    def open(self, store: Readable, key: str) -> ParquetReader:
        return ParquetReader(store, key)


class ParquetRows(ShardWriter):
    """A writer of a shard, by way of a temporary file.

    The writer holds the samples of a row group. While the row group is written, pyarrow makes two
    copies; of a streamed sample, only these copies are in memory.
    """

    def __init__(self, output: HashedOutput, layout: Layout) -> None:
        super().__init__(output)
        self._schema = _schema(tuple(layout.parts), layout.labelled)
        self._file = _SinkFile(output)
        self._parquet = _parquet(self._file.sink, self._schema)
        self._layout = layout
        self._samples: list[tuple[PlannedSample, Mapping[str, _Content]]] = []
        self._packed: list[pa.RecordBatch] = []
        self._group_bytes = 0
        self._large = False
        self._count = 0

    def append_streamed(self, sample: PlannedSample, source: Readable) -> None:
        bodies = []
        large = sum(part.size_bytes for part in sample.parts) > ROW_GROUP_BYTES
        for part in sample.parts:
            mapped_bytes = part.size_bytes if large else 0
            bodies.append(mapped_content(stream(source, part), mapped_bytes))
        self.append(sample, bodies)

    def append(self, sample: PlannedSample, bodies: Sequence[tuple[_Content, int]]) -> None:
        data, checksums = zip(*bodies, strict=True)
        size_bytes = sum(map(len, data))
        pending = self._samples or self._packed
        if pending and self._group_bytes + size_bytes > ROW_GROUP_BYTES:
            self._flush()
        exts = (part.ext for part in sample.parts)
        self._samples.append((sample, dict(zip(exts, data, strict=True))))
        self._group_bytes += size_bytes
        offsets = [None] * len(data)
        self._rows.add_parts(sample, (self._count, 1), offsets, map(len, data), checksums)
        self._count += 1
        if self._group_bytes > ROW_GROUP_BYTES:  # the next sample begins another row group
            self._flush()
        elif len(self._samples) == _PACKED_SAMPLES:
            self._pack()

    def finish(self) -> Spool:
        if self._samples or self._packed:
            self._flush()
        with disk_errors(self._file.folder):
            self._parquet.close()
        self._file.empty()
        self.close()
        return super().finish()

    def close(self) -> None:
        """Let another shard have a large row group in memory."""
        if self._large:
            self._large = False
            _one_large.release()

    def _pack(self) -> None:
        """Turn held samples into columns, which take a fraction of the memory."""
        columns = [pa.array([sample.key for sample, _ in self._samples], pa.string())]
        if self._layout.labelled:
            columns.append(pa.array([sample.label for sample, _ in self._samples], pa.int64()))
        for ext in self._layout.parts:
            columns.append(_binary([parts.get(ext) for _, parts in self._samples]))
        self._samples = []
        self._packed.append(pa.record_batch(columns, schema=self._schema))

    def _flush(self) -> None:
        large = self._group_bytes > ROW_GROUP_BYTES
        if large and not self._large:
            _one_large.acquire()
            self._large = True
        contents = [data for _, parts in self._samples for data in parts.values()] if large else []
        if self._samples:
            self._pack()
        table = pa.Table.from_batches(self._packed)
        self._packed, self._group_bytes = [], 0
        if table.column(0).num_chunks > 1:
            table = table.combine_chunks()  # the ends of chunks would affect the pages
        with disk_errors(self._file.folder), giving_back(contents):
            self._parquet.write_table(table, row_group_size=len(table))
        del table
        self._file.empty()
        if not large:
            self.close()


class ParquetReader(Closing):
    """A reader of samples, which keeps the columns of the last row group with several samples."""

    def __init__(self, store: Readable, key: str) -> None:
        self.url = object_url(store.url, key)
        with self._damage():
            with store.open(key, length=1) as reader:
                file = ObjectFile(store, key, reader.info.size_bytes)
            self._parquet = pq.ParquetFile(
                pa.PythonFile(file, "r"), page_checksum_verification=True, pre_buffer=False
            )
            groups = range(self._parquet.num_row_groups)
            self._rows = [self._parquet.metadata.row_group(group).num_rows for group in groups]
            self._ends = np.array(list(accumulate(self._rows)), np.int64)
        self._group = -1
        self._columns: dict[str, pa.ChunkedArray] = {}

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        """Read parts of a sample; the first sample of a row group loads the columns for all."""
        group, row = self._place(sample)
        if group != self._group:
            self._group, self._columns = group, {}
        if parts is None and self._column(_KEY, pa.string())[row].as_py() != sample.key:
            message = "its row has another key than the index"
            raise DamageError("damage.record", message, where=f"{self.url}: {sample.key}")
        contents = {}
        for part in sample.parts if parts is None else parts:
            labels = part.ext == LABEL_EXT and sample.label is not None
            column = self._column(_LABEL, pa.int64()) if labels else self._column(part.ext)
            value = column[row].as_py()
            if value is None:
                where, message = part_place(self.url, sample, part.ext), "there is no such part"
                raise DamageError("damage.manifest", message, where=where)
            data = label_bytes(value) if labels else value
            contents[part.ext] = check_part(part, data, sample, self.url)
        return contents

    def close(self) -> None:
        self._group, self._columns = -1, {}

    def _place(self, sample: IndexedSample) -> tuple[int, int]:
        group = int(np.searchsorted(self._ends, sample.offset, side="right"))
        if group >= len(self._ends):
            message = f"the shard has no row {sample.offset:,}"
            raise DamageError("damage.size", message, where=self.url)
        return group, sample.offset - (int(self._ends[group - 1]) if group else 0)

    def _column(self, name: str, kind: pa.DataType = _VALUES) -> pa.ChunkedArray:
        if name not in self._columns:
            if name not in self._parquet.schema_arrow.names:
                message = f"the shard has no column {name!r}, although the index refers to one"
                raise DamageError("damage.manifest", message, where=self.url)
            with self._damage():
                table = self._parquet.read_row_group(self._group, [name], use_threads=False)
            column, rows = table.column(0), self._rows[self._group]
            if column.type != kind or len(column) != rows:
                message = f"the shard's column {name!r} has not {rows:,} values of type {kind}"
                raise DamageError("damage.record", message, where=self.url)
            if rows == 1:  # no caller asks for it again, and it may be large
                return column
            self._columns[name] = column
        return self._columns[name]

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            if limit := limit_error(error, self.url):
                raise limit from error
            message = f"the shard cannot be read: {str(error).splitlines()[0]}"
            raise DamageError("damage.record", message, where=self.url) from error


def _binary(values: list[_Content | None]) -> pa.Array:
    """Return an array of values. A single value is not copied, because it may be large."""
    if len(values) != 1 or values[0] is None:
        return pa.array(values, pa.binary())
    ends = pa.array([0, len(values[0])], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(values[0])])


class _SinkFile:
    """A file without a name: pyarrow writes to it, and `empty` moves the content to an output.

    A file object of Python would get a copy of everything written, in one piece.
    """

    def __init__(self, output: HashedOutput) -> None:
        self.folder = Path(tempfile.gettempdir())
        self._output = output
        self._emptied = 0
        with disk_errors(self.folder):
            self._handle, name = tempfile.mkstemp()
            weakref.finalize(self, os.close, self._handle)
            try:
                self.sink = pa.OSFile(name, "wb")
            finally:
                os.unlink(name)

    def empty(self) -> None:
        """Move the written bytes to the output, and release their space on the disk."""
        end = self.sink.tell()
        while self._emptied < end:
            with disk_errors(self.folder, reading=True):
                piece = os.pread(self._handle, _PIECE_BYTES, self._emptied)
            self._output.append([piece], len(piece))
            self._emptied += len(piece)
        with disk_errors(self.folder):
            os.ftruncate(self._handle, 0)  # further bytes come after a gap that takes no space


def _schema(exts: tuple[str, ...], labelled: bool) -> pa.Schema:
    fields = [pa.field(_KEY, pa.string(), nullable=False)]
    if labelled:
        fields.append(pa.field(_LABEL, pa.int64()))
    return pa.schema([*fields, *(pa.field(ext, pa.binary()) for ext in exts)])


def _parquet(sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )


@lru_cache(16)
def _empty_bytes(exts: tuple[str, ...], labelled: bool) -> int:
    sink, schema = pa.BufferOutputStream(), _schema(exts, labelled)
    arrays = [pa.array([""], pa.string()), *([pa.array([0], pa.int64())] if labelled else [])]
    arrays += [pa.array([b""], pa.binary()) for _ in exts]
    with _parquet(sink, schema) as parquet:
        parquet.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return int(sink.tell()) - 8 * labelled - _LENGTH_BYTES * (1 + len(exts))


def _refuse_long(parts: pa.StructArray) -> None:
    sizes = parts.field("size_bytes").to_numpy()
    if len(sizes) and sizes.max() > VALUE_BYTES:
        key = parts.field("key")[int(sizes.argmax())].as_py()
        message = (
            f"the object has {sizes.max():,} bytes, a value of Parquet at most {VALUE_BYTES:,}"
        )
        hint = "exclude it, or choose another shards.format"
        raise ConfigError("config.invalid_value", message, where=key, hint=hint)
