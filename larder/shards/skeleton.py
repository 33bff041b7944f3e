"""Records of ``tf.train.Example`` without the contents of the parts, and the sizes of all records.

A skeleton says what is before, between and after the contents of a sample's parts. So a record is
written in pieces, its length is known before its contents are read, and a part is a range of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import FormatOptions
from larder.shards.example import (
    bytes_head,
    bytes_sizes,
    example_head,
    example_sizes,
    float_entry,
    int64_entry,
)
from larder.shards.features import FeatureMap, numbers, two_images
from larder.shards.model import Sample, label_bytes
from larder.shards.sizes import Sizes

_LAYOUTS = 1_024
"""How many combinations of extensions are remembered; a dataset has a few."""

_LABELS = 65_536
"""How many labels are remembered."""


class Skeleton(NamedTuple):
    """An example without the contents of its sample's parts.

    Attributes:
        pieces: What it consists of; a number stands for the content of that part of the sample.
        offsets: Where the content of each part is in the example.
        size_bytes: Its length.
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
        """Whether no part becomes numbers, of which the size depends on its content."""
        return not self._features.has_numbers

    def of(self, sample: Sample, sizes: Sequence[int], texts: Sequence[bytes]) -> Skeleton:
        """The skeleton of a sample, given the lengths and contents of its parts.

        Of the contents only `number_parts` are used, which are refused with ``sample.undecodable``
        if they are not the numbers that they have to be.
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
        self, exts: tuple[str, ...], samples: Sequence[Sample], contents: Sequence[Sequence[bytes]]
    ) -> tuple[list[Sequence[bytes]], list[int]]:
        """The examples of several samples with the same extensions, without parts that are numbers.

        ``contents`` has the contents of the parts for each extension. Returned is what the examples
        consist of, piece by piece, each of them for all samples; every other one, from the second
        on, is the content of a part; and which part that is.
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

    def number_parts(self, sample: Sample) -> frozenset[int]:
        """Which parts of a sample become numbers."""
        if self.sizes_known:
            return frozenset()
        places = self._places(extensions(sample))
        return frozenset(place.part for place in places if place.source == "part")

    def label_entries(self, label: int) -> list[bytes]:
        """What a label adds to the example of its sample."""
        return [
            self._label_entry(place.name, place.source, place.kind, label)
            for place in self._features.of_sample
            if place.source != "key"
        ]

    def sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Length of the examples of many samples; an estimate if sizes are not known.

        ``config.invalid_value``: a sample does not fit ``shards.features``.
        """
        entries = self._part_sizes(batch)
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
        return example_sizes(entries)

    def _part_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Total length of the features of all parts of each sample."""
        parts = batch.column("parts")
        counts = pc.list_value_length(parts).to_numpy().astype(np.int64)
        flat = parts.flatten()
        exts = flat.field("ext").dictionary_encode()
        sizes = flat.field("size_bytes").to_numpy().astype(np.int64)
        codes, known = exts.indices.to_numpy(), exts.dictionary.to_pylist()
        self._check_images(batch, counts, codes, known)
        lengths = pc.binary_length(exts.dictionary).to_numpy().astype(np.int64)
        found = bytes_sizes(lengths[codes] if len(codes) else sizes, sizes)
        for code, ext in enumerate(known):
            if not self._features.is_plain(ext):
                rows = np.flatnonzero(codes == code)
                found[rows] = 0
                for name, _ in self._features.of_part(ext):
                    found[rows] += bytes_sizes(_length(name), sizes[rows])
        ends = np.concatenate(([0], np.cumsum(found)))
        last = np.cumsum(counts)
        total: Sizes = ends[last] - ends[last - counts]
        return total

    def _check_images(
        self, batch: pa.RecordBatch, counts: Sizes, codes: Sizes, known: Sequence[str]
    ) -> None:
        images = np.array([self._features.is_image(ext) for ext in known], np.bool_)
        if not images.any():
            return
        rows = np.repeat(np.arange(len(counts)), counts)[images[codes]]
        again = np.flatnonzero(rows[1:] == rows[:-1])
        if len(again):
            raise two_images(batch.column("key")[int(rows[again[0]])].as_py())

    def _label_entries(
        self, samples: Sequence[Sample], name: str, source: str, kind: str
    ) -> list[bytes]:
        """What the label of each sample adds to its example."""
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


def extensions(sample: Sample) -> tuple[str, ...]:
    # A list, because it is faster than a generator, and this is called for every sample.
    return tuple([part.ext for part in sample.parts])


def _length(name: str) -> int:
    return len(name.encode())


def _text_entry(name: str, text: str) -> bytes:
    raw = text.encode()
    return bytes_head(name, len(raw)) + raw


def _numbers_entry(name: str, kind: str, values: Sequence[int] | Sequence[float]) -> bytes:
    if kind == "int64":
        return int64_entry(name, [int(value) for value in values])
    return float_entry(name, values)
