"""Samples as members of a tar archive, for WebDataset readers.

A part is a member ``KEY.EXT``; a label is the member ``KEY.cls`` in ASCII decimal digits. The
members of a sample are consecutive, sorted by extension. Format: "The WebDataset Format" in the
library's documentation; the bytes of the archive come from `larder.shards.formats.tar`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

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
from larder.shards.members import all_members, members, streamed_members
from larder.shards.model import PlannedSample, ShardPlan
from larder.shards.reading.fetch import Body, Contents
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


class TarWriter(ShardWriter):
    lots = True

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> None:
        start = offset = self._output.bytes
        key, label = sample.key, sample.label
        pieces: list[bytes] = []
        rows: list[PartRow] = []
        for ext, source, etag, (data, crc32c) in members(sample, bodies):
            size = len(data)
            header = tar.member_header(f"{key}.{ext}", size)
            offset += len(header)
            rows.append((ext, source, etag, offset, size, crc32c))
            pad = tar.padding(size)
            pieces += header, data, pad
            offset += size + len(pad)
        self._output.append(pieces, offset - start)
        self._rows.add((key, start, offset - start, label), rows)

    def append_all(self, samples: Sequence[PlannedSample], contents: Contents) -> None:
        exts, sources, etags, data, checksums, _, counts = all_members(samples, contents)
        keys, labels = [each.key for each in samples], [each.label for each in samples]
        repeated = chain.from_iterable(map(repeat, keys, counts.tolist()))
        names = [f"{key}.{ext}" for key, ext in zip(repeated, exts, strict=True)]
        sizes = np.fromiter(map(len, data), np.int64, len(data))
        headers = tar.member_headers(names, sizes)
        head_sizes = np.fromiter(map(len, headers), np.int64, len(headers))
        start = self._output.bytes
        lengths = head_sizes + sizes + -sizes % tar.BLOCK_BYTES
        ends = np.concatenate(([start], start + np.cumsum(lengths)))
        pieces = [b""] * (3 * len(data))
        pieces[::3], pieces[1::3] = headers, data
        pieces[2::3] = tar.paddings(sizes)
        self._output.append(pieces, int(ends[-1]) - start)
        borders = ends[np.concatenate(([0], np.cumsum(counts)))]
        starts, lengths = borders[:-1].tolist(), np.diff(borders).tolist()
        offsets = (ends[:-1] + head_sizes).tolist()
        self._rows.add_all(
            (keys, starts, lengths, labels),
            (exts, sources, etags, offsets, sizes.tolist(), checksums),
            counts.tolist(),
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
