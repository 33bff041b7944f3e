"""Samples as members of a tar archive, for WebDataset readers.

A part is a member ``KEY.EXT``; a label is the member ``KEY.cls`` in ASCII decimal digits. The
members of a sample are consecutive, sorted by extension. Format: "The WebDataset Format" in the
library's documentation; the bytes of the archive come from `larder.shards.formats.tar`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import sub
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.digest import canonical_json
from larder.manifest.spool import Spool
from larder.samples.naming import LABEL_EXT
from larder.shards.formats import tar
from larder.shards.formats.format_interface import ShardFormat, ShardWriter, Split
from larder.shards.hashed_output import HashedOutput
from larder.shards.index_rows import PartRow
from larder.shards.members import MemberColumns, planned_members, streamed_members, with_labels
from larder.shards.model import PlannedSample, ShardPlan
from larder.shards.reading.fetch import Body, Contents
from larder.shards.reading.readahead import Lot
from larder.shards.sizes import Sizes, sum_parts
from larder.store.base import Readable


class DaliTarIndex:
    kind = "dali"

    def file_name(self, shard: str) -> str:
        return f"{shard.removesuffix('.tar')}.idx"

    def content(self, rows: Spool) -> Iterator[bytes] | None:
        """Return the text; None if an extension has a space, which DALI cannot express."""
        named = True
        for batch in rows.read():
            if _spaced(batch.column("parts").flatten().field("ext")):
                return None
            named = named and not _spaced(batch.column("key"))
        head = f"v1.{2 if named else 1} {rows.num_rows}\n".encode()
        return chain([head], (_lines(batch, named=named) for batch in rows.read()))


def _lines(rows: pa.RecordBatch, *, named: bool) -> bytes:
    parts = rows.column("parts")
    counts = pc.list_value_length(parts).to_numpy()
    entries = parts.flatten()
    exts = entries.field("ext")
    columns = [exts, *(entries.field(name).cast(pa.string()) for name in ("offset", "length"))]
    if named:
        own_keys = rows.column("key").take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        columns.append(pc.binary_join_element_wise(own_keys, exts, "."))
    members = pc.binary_join_element_wise(*columns, " ")
    stops = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    lines = pc.binary_join(pa.ListArray.from_arrays(stops, members), " ")
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    return f"{text[0].as_py()}\n".encode()


def _spaced(texts: pa.Array) -> bool:
    """Whether any text contains a space: keys contain no other character that ends a word."""
    return bool(pc.any(pc.match_substring(texts, " ")).as_py())


class WidsIndex:
    """The shard index of webdataset's ``wids``, version 1; URLs are relative to the index."""

    kind = "wids"

    def content(self, split: Split) -> bytes:
        """Return the JSON document, without MD5 sums, which wids does not need."""
        shards = [
            {
                "url": f"{split.to_root}/{file.path}",
                "nsamples": samples,
                "filesize": file.bytes,
            }
            for file, samples in split.shards
        ]
        document = {
            "__kind__": "wids-shard-index-v1",
            "wids_version": 1,
            "name": f"{split.dataset}-{split.name}",
            "shardlist": shards,
        }
        return canonical_json(document) + b"\n"


class WebDataset(ShardFormat):
    """``shards.format: webdataset``, which has no options."""

    suffix = ".tar"
    empty_bytes = len(tar.END)
    indexes = (DaliTarIndex(),)
    split_indexes = (WidsIndex(),)
    framed = True

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Return the bytes of each sample's members: headers, data and padding, with the label."""
        parts = batch.column("parts")
        entries = parts.flatten()
        keys = batch.column("key").take(pc.list_parent_indices(parts))
        sizes = entries.field("size_bytes").to_numpy()
        totals = sum_parts(parts, _member_sizes(keys, entries.field("ext"), sizes))
        labels = batch.column("label")
        rows = np.flatnonzero(labels.is_valid().to_numpy(zero_copy_only=False))
        if len(rows):
            keys, exts = batch.column("key").take(pa.array(rows)), pa.repeat(LABEL_EXT, len(rows))
            texts = pc.binary_length(pc.cast(labels.drop_null(), pa.string()))
            totals[rows] += _member_sizes(keys, exts, texts.to_numpy().astype(np.int64))
        return totals

    def heads(self, names: Sequence[str], sizes: Sizes) -> tuple[Sequence[bytes], Sizes]:
        return tar.member_headers(names, sizes), -sizes % tar.BLOCK_BYTES

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> TarWriter:
        return TarWriter(*outputs)


class _Frames(NamedTuple):
    """The planned members of a window of samples, and what surrounds their contents.

    ``offsets`` of contents and ``borders`` of samples are counted from the window's first member.
    """

    members: MemberColumns
    headers: Sequence[bytes]
    paddings: Sequence[bytes]
    offsets: Sequence[int]
    borders: Sequence[int]

    @staticmethod
    def of(window: Sequence[PlannedSample]) -> _Frames:
        members = planned_members(window)
        keys = chain.from_iterable(map(repeat, [each.key for each in window], members.counts()))
        names = list(map("{}.{}".format, keys, members.exts))
        sizes = np.array(members.sizes, np.int64)
        headers = tar.member_headers(names, sizes)
        head_sizes = np.fromiter(map(len, headers), np.int64, len(headers))
        ends = np.append(0, np.cumsum(head_sizes + sizes + -sizes % tar.BLOCK_BYTES))
        offsets, borders = ends[:-1] + head_sizes, ends[list(members.borders)]
        return _Frames(members, headers, tar.paddings(sizes), offsets.tolist(), borders.tolist())


class TarWriter(ShardWriter):
    least_together = 1
    _window: Sequence[PlannedSample] = ()
    _frames: _Frames

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> None:
        start = offset = self._output.bytes
        pieces: list[bytes] = []
        rows: list[PartRow] = []
        members = planned_members([sample])
        every = with_labels(members.keys, [sample], Contents(*zip(*bodies, strict=True)))
        columns = zip(members.exts, members.keys, members.etags, *every, strict=True)
        for ext, source, etag, data, crc32c in columns:
            size = len(data)
            header = tar.member_header(f"{sample.key}.{ext}", size)
            offset += len(header)
            rows.append((ext, source, etag, offset, size, crc32c))
            pad = tar.padding(size)
            pieces += header, data, pad
            offset += size + len(pad)
        self._output.append(pieces, offset - start)
        self._rows.add((sample.key, start, offset - start, sample.label), rows)

    def append_all(self, lot: Lot, contents: Contents) -> None:
        if lot.window is not self._window:  # one by one, headers would take ten times as long
            self._window, self._frames = lot.window, _Frames.of(lot.window)
        frames, members, samples = self._frames, self._frames.members, lot.samples
        first, last = lot.first, lot.first + len(samples)
        of_samples = members.borders[first : last + 1]
        lot_members = slice(of_samples[0], of_samples[-1])
        exts, sizes = members.exts[lot_members], members.sizes[lot_members]
        sources, etags = members.keys[lot_members], members.etags[lot_members]
        every = with_labels(sources, samples, contents)
        framed = frames.headers[lot_members], every.data, frames.paddings[lot_members]
        shift = self._output.bytes - frames.borders[first]
        borders = [shift + border for border in frames.borders[first : last + 1]]
        pieces = list(chain.from_iterable(zip(*framed, strict=True)))
        self._output.append(pieces, borders[-1] - borders[0])
        offsets = [shift + offset for offset in frames.offsets[lot_members]]
        lengths, counts = (map(sub, each[1:], each) for each in (borders, of_samples))
        keys, labels = zip(*[(each.key, each.label) for each in samples], strict=True)
        self._rows.add_all(
            (keys, borders[:-1], lengths, labels),
            (exts, sources, etags, offsets, sizes, every.checksums),
            counts,
        )

    def append_streamed(self, sample: PlannedSample, source: Readable) -> None:
        start = self._output.bytes
        rows: list[PartRow] = []
        for ext, key, etag, size_bytes, buffers in streamed_members(sample, source):
            self._put(tar.member_header(f"{sample.key}.{ext}", size_bytes))
            offset = self._output.bytes
            crc32c = self._put_all(buffers)
            self._put(tar.padding(size_bytes))
            rows.append((ext, key, etag, offset, size_bytes, crc32c))
        self._rows.add((sample.key, start, self._output.bytes - start, sample.label), rows)

    def finish(self) -> Spool:
        self._put(tar.END)
        return super().finish()


def _member_sizes(keys: pa.Array, exts: pa.Array, sizes: Sizes) -> Sizes:
    """Return `larder.shards.formats.tar.member_size` of many members, from their data sizes."""
    names = pc.binary_join_element_wise(keys, exts, ".")
    plain = pc.and_(
        pc.and_(pc.string_is_ascii(names), pc.less_equal(pc.binary_length(names), tar.NAME_BYTES)),
        pc.invert(pc.or_(pc.match_substring(names, "\0"), pc.ends_with(names, "/"))),
    ).to_numpy(zero_copy_only=False)
    member_sizes = tar.BLOCK_BYTES + sizes + -sizes % tar.BLOCK_BYTES
    for row in np.flatnonzero(~(plain & (sizes < tar.OCTAL_LIMIT))).tolist():
        member_sizes[row] = tar.member_size(names[row].as_py(), int(sizes[row]))
    return member_sizes
