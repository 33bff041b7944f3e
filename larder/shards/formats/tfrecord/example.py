"""The bytes of ``tf.train.Example``, as C++'s protobuf makes them in deterministic serialization.

An example is a map from names to features, each a list of bytes, of int64 or of float32
(``tensorflow/core/example/example.proto`` and ``feature.proto``). Here every list of bytes has one
value, and the entries of the map are sorted by the bytes of their names. So everything except the
contents of the parts is known before the parts are read. A skeleton has the bytes before, between
and after the contents. A record is written in pieces, its length is known in advance, and a part is
a range of the record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import FormatOptions
from larder.shards.formats.tfrecord.features import FeatureMap, numbers, two_images
from larder.shards.model import PlannedSample, label_bytes
from larder.shards.sizes import Sizes, sum_parts

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"
"""Fields 1 to 3 of ``Feature``."""

_FIRST = b"\x0a"
"""Field 1, with a length: the features of an example, an entry, its name, the values of a list."""

_VALUE = b"\x12"
"""Field 2, with a length: the feature of an entry."""

_VARINT_LIMITS = 1 << np.arange(7, 63, 7, dtype=np.int64)
"""Limits from which on a varint needs another byte."""


def varint(value: int) -> bytes:
    """Encode a base-128 number; a negative number takes ten bytes, as 64-bit two's complement."""
    if 0 <= value < 128:
        return bytes((value,))
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@lru_cache(4096)
def bytes_head(name: str, size_bytes: int) -> bytes:
    """Return the bytes of an entry before its only value, which has ``size_bytes``."""
    values = _FIRST + varint(size_bytes)
    return _entry_head(name, _BYTES_LIST, values, size_bytes)


@lru_cache(4096)
def example_head(entries_bytes: int) -> bytes:
    """Return the beginning of an example, before entries with this total length."""
    return _FIRST + varint(entries_bytes)


def _numbers_entry(name: str, kind: str, values: Sequence[int] | Sequence[float]) -> bytes:
    """Encode an entry with a list of numbers, in the range of int64 or rounded to float32."""
    if kind == "int64":
        tag, packed = _INT64_LIST, b"".join([varint(int(value)) for value in values])
    else:
        tag, packed = _FLOAT_LIST, struct.pack(f"<{len(values)}f", *values)
    if not packed:  # a list without values has no field
        return _entry_head(name, tag, b"", 0)
    return _entry_head(name, tag, _FIRST + varint(len(packed)), len(packed)) + packed


def _entry_head(name: str, kind: bytes, values: bytes, size_bytes: int) -> bytes:
    """Return the beginning of an entry up to ``values``; ``size_bytes`` of values follow."""
    listed = len(values) + size_bytes
    feature = kind + varint(listed) + values
    feature_bytes = len(feature) + size_bytes
    raw = name.encode()
    fields = _FIRST + varint(len(raw)) + raw + _VALUE + varint(feature_bytes) + feature
    return _FIRST + varint(len(fields) + size_bytes) + fields


def bytes_sizes(name_bytes: Sizes | int, sizes: Sizes) -> Sizes:
    """Return the lengths of entries with one value, given the lengths of names and values."""
    list_bytes = field_sizes(sizes)
    return field_sizes(field_sizes(name_bytes) + field_sizes(field_sizes(list_bytes)))


def field_sizes(sizes: Sizes | int) -> Sizes:
    """Return the lengths of fields: a tag, the length of the content, and the content."""
    lengths: Sizes = 1 + _varint_sizes(sizes) + sizes
    return lengths


def _varint_sizes(values: Sizes | int) -> Sizes:
    more: Sizes = np.searchsorted(_VARINT_LIMITS, values, side="right")
    return np.where(values < 0, 10, 1 + more)


_LAYOUTS = 1_024
"""Number of combinations of extensions to remember; a dataset has a few."""

_LABELS = 65_536
"""Number of labels to remember."""


class Skeleton(NamedTuple):
    """An example without the contents of its sample's parts.

    Attributes:
        pieces: Pieces in order; a number stands for the content of the part with that number.
        offsets: The place of each part's content in the example.
    """

    pieces: list[bytes | int]
    offsets: list[int]
    size_bytes: int


class Skeletons:
    def __init__(self, options: FormatOptions) -> None:
        self._features = FeatureMap(options)
        self._classes = options.classes
        self._places = lru_cache(_LAYOUTS)(self._features.places)
        self._label_entry = lru_cache(_LABELS)(self._make_label_entry)

    @property
    def sizes_known(self) -> bool:
        """Whether no part becomes numbers, whose size would depend on the content."""
        return not self._features.has_numbers

    def of(self, sample: PlannedSample, sizes: Sequence[int], texts: Sequence[bytes]) -> Skeleton:
        """Return the skeleton of a sample, given the lengths and contents of its parts.

        Only the contents of `number_parts` are used; if they are not the required numbers,
        ``sample.undecodable`` is raised.
        """
        pieces: list[bytes | int] = []
        offsets = [0] * len(sizes)
        at = 0
        small = b""  # one piece, as long as no content comes between
        for name, source, kind, part in self._places(extensions(sample)):
            if source == "content":
                small += bytes_head(name, sizes[part])
                at += len(small)
                offsets[part] = at
                at += sizes[part]
                pieces += small, part
                small = b""
            elif source == "key":
                small += _text_entry(name, sample.key)
            elif source == "part":
                values = numbers(texts[part], kind, sample.parts[part].key)
                small += _numbers_entry(name, kind, values)
            elif sample.label is not None:
                small += self._label_entry(name, source, kind, sample.label)
        at += len(small)
        pieces.append(small)
        head = example_head(at)
        pieces[0] = head + pieces[0]  # type: ignore[operator]  # the first one is no content
        return Skeleton(pieces, [len(head) + offset for offset in offsets], len(head) + at)

    def pieces(
        self,
        exts: tuple[str, ...],
        samples: Sequence[PlannedSample],
        contents: Sequence[Sequence[bytes]],
    ) -> tuple[list[Sequence[bytes]], list[int]]:
        """Return the examples of several samples with the same extensions and no number parts.

        ``contents`` has the contents of the parts for each extension. The result is the pieces of
        the examples, each a column over all samples, and the numbers of the parts. Every other
        piece, from the second on, is the content of a part.
        """
        columns: list[Sequence[bytes]] = []
        parts: list[int] = []
        small = [b""] * len(samples)
        for name, source, kind, part in self._places(exts):
            if source == "content":
                data = contents[part]
                heads = [bytes_head(name, len(each)) for each in data]
                columns += list(map(add, small, heads)), data
                parts.append(part)
                small = [b""] * len(samples)
            elif source == "key":
                texts = [_text_entry(name, sample.key) for sample in samples]
                small = list(map(add, small, texts))
            else:
                small = list(map(add, small, self._label_entries(samples, name, source, kind)))
        columns.append(small)
        sizes = [sum(map(len, each)) for each in zip(*columns, strict=True)]
        columns[0] = [*map(add, map(example_head, sizes), columns[0])]
        return columns, parts

    def number_parts(self, sample: PlannedSample) -> frozenset[int]:
        if self.sizes_known:
            return frozenset()
        places = self._places(extensions(sample))
        return frozenset(place.part for place in places if place.source == "part")

    def sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Return the lengths of many examples; an estimate if sizes are not known."""
        entries = sum_parts(batch.column("parts"), self._part_sizes(batch))
        for place in self._features.of_sample:
            if place.source == "key":
                keys = pc.binary_length(batch.column("key")).to_numpy().astype(np.int64)
                entries += bytes_sizes(_length(place.name), keys)
                continue
            labels = batch.column("label")
            rows = np.flatnonzero(labels.is_valid().to_numpy(zero_copy_only=False))
            values, which = np.unique(labels.drop_null().to_numpy(), return_inverse=True)
            lengths = [len(self._label_entry(*place[:3], value)) for value in values.tolist()]
            entries[rows] += np.array(lengths, np.int64)[which]
        return field_sizes(entries)

    def _part_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Return the length of the features of each part."""
        parts = batch.column("parts").flatten()
        exts = parts.field("ext").dictionary_encode()
        sizes = parts.field("size_bytes").to_numpy()
        codes, unique_exts = exts.indices.to_numpy(), exts.dictionary.to_pylist()
        self._check_images(batch, codes, unique_exts)
        lengths = pc.binary_length(exts.dictionary).to_numpy().astype(np.int64)
        feature_sizes = bytes_sizes(lengths[codes] if len(codes) else sizes, sizes)
        for code, ext in enumerate(unique_exts):
            if not self._features.is_plain(ext):
                rows = np.flatnonzero(codes == code)
                feature_sizes[rows] = 0
                for name, _ in self._features.of_part(ext):
                    feature_sizes[rows] += bytes_sizes(_length(name), sizes[rows])
        return feature_sizes

    def _check_images(self, batch: pa.RecordBatch, codes: Sizes, exts: Sequence[str]) -> None:
        images = np.array([self._features.is_image(ext) for ext in exts], np.bool_)
        if images.any():
            rows = pc.list_parent_indices(batch.column("parts")).to_numpy()[images[codes]]
            again = np.flatnonzero(rows[1:] == rows[:-1])
            if len(again):
                raise two_images(batch.column("key")[int(rows[again[0]])].as_py())

    def _label_entries(
        self, samples: Sequence[PlannedSample], name: str, source: str, kind: str
    ) -> list[bytes]:
        entry = self._label_entry
        labels = [sample.label for sample in samples]
        return [b"" if label is None else entry(name, source, kind, label) for label in labels]

    def _make_label_entry(self, name: str, source: str, kind: str, label: int) -> bytes:
        if source == "class":
            return _text_entry(name, self._classes[label])
        if kind == "bytes":
            data = label_bytes(label)
            return bytes_head(name, len(data)) + data
        return _numbers_entry(name, kind, [label])


def extensions(sample: PlannedSample) -> tuple[str, ...]:
    # A list, because it is faster than a generator, and this is called for every sample.
    return tuple([part.ext for part in sample.parts])


def _length(name: str) -> int:
    return len(name.encode())


def _text_entry(name: str, text: str) -> bytes:
    raw = text.encode()
    return bytes_head(name, len(raw)) + raw
