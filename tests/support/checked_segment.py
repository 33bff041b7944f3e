"""Checks that a segment and its caches are complete and correct: a part of `checker`.

A segment has every sample that it ever had, also those that versions omit.
"""

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from larder.cache.cache_record import Array, CacheFileFacts
from larder.cache.fields import LABEL, field_names
from larder.cache.file import open_file
from larder.cache.schema import KEY
from larder.config.shape import FormatUse
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import INDEXED, SKIPPED, SOURCES
from larder.manifest.sealed import StoredFile
from larder.manifest.spool import Spool
from larder.samples.decoders import Decoders
from larder.samples.indexed import IndexedSample, read_index
from larder.samples.naming import LABEL_EXT
from larder.shards.formats import shard_format
from larder.shards.formats.format_interface import index_files
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import CacheDocument, CacheFile, SegmentDocument
from larder.versions.index import Shard, read_shards
from larder.versions.publish import read_cache, read_segment
from larder.versions.rows import read_rows


@dataclass(frozen=True, slots=True)
class SampleContent:
    """A sample in a shard: the bytes of each part by extension, including the label."""

    key: str
    parts: Mapping[str, bytes]

    @property
    def label(self) -> int | None:
        return int(self.parts[LABEL_EXT]) if LABEL_EXT in self.parts else None


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """A segment that was checked: by split, its samples and shards in order."""

    document: SegmentDocument
    samples: Mapping[str, Sequence[SampleContent]]
    shards: Mapping[str, Sequence[Shard]]


def same_bytes(root: Store, key: str, size_bytes: int, sha256: str) -> bytes:
    """The content of an object, which has to be what was published."""
    data = bytes(root.get(key))
    assert len(data) == size_bytes, f"{key} has {len(data)} bytes, not {size_bytes}"
    assert hashlib.sha256(data).hexdigest() == sha256, f"{key} is not what was published"
    return data


def check_segment(root: Store, segment: str) -> SegmentContent:
    document = read_segment(root, segment)
    assert document is not None, f"there is no segment {segment}"
    assert document.id == segment
    with tempfile.TemporaryDirectory() as folder:
        files = {file.role: _local(root, file, Path(folder) / file.role) for file in document.files}
        assert list(files) == [file.role for file in document.files], "two files of a role"
        needed = {"rows", "sources"}
        assert needed <= set(files) <= needed | {"skipped"}
        if "skipped" in files:
            bad = sum(batch.num_rows for batch in read_manifest(files["skipped"], SKIPPED))
            assert bad == document.skipped > 0
        rows = pa.Table.from_batches(read_rows(root, document.file("rows")), INDEXED)
        index = _index(rows, document)
        _check_sources(files["sources"], rows)
        _check_reader_indexes(root, document, rows)
        shards = _shards(root, document)
    samples = {
        split: list(_contents(root, document, split, shards[split], index[split]))
        for split in document.splits
    }
    _check_listing(root, segment, shards)
    return SegmentContent(document, samples, shards)


def _check_sources(path: Path, rows: pa.Table) -> None:
    """Every sample of the index has its sources, and every part but that of a label has one."""
    sources = [row for batch in read_manifest(path, SOURCES) for row in batch.to_pylist()]
    for source, row in zip(sources, rows.to_pylist(), strict=True):
        assert (source["key"], source["label"]) == (row["key"], row["label"])
        names = ("ext", "length", "crc32c")
        parts = [
            {name: part[name] for name in names}
            for part in row["parts"]
            if part["ext"] != LABEL_EXT or row["label"] is None
        ]
        assert [{name: part[name] for name in names} for part in source["parts"]] == parts
        assert all(part["source"] for part in source["parts"])


def _local(root: Store, file: StoredFile, path: Path) -> Path:
    path.write_bytes(same_bytes(root, file.path, file.bytes, file.sha256))
    return path


def _index(rows: pa.Table, document: SegmentDocument) -> dict[str, list[IndexedSample]]:
    """By split, its samples: consecutive rows of the index."""
    samples = list(read_index(rows.to_batches()))
    row = 0
    index: dict[str, list[IndexedSample]] = {}
    in_order = sorted(
        document.splits.items(), key=lambda item: (item[1].first_row, item[1].samples)
    )
    for split, facts in in_order:
        assert facts.first_row == row, f"the samples of {split} begin at another row"
        stop = row + facts.samples
        index[split] = samples[row:stop]
        row = stop
    assert row == len(samples), f"{document.id}: samples of no split"
    return index


def _shards(root: Store, document: SegmentDocument) -> dict[str, list[Shard]]:
    """By split, its shards, with the files of their format, under the names that they may have."""
    format_ = shard_format(*document.shape.use)
    found: dict[str, list[Shard]] = {split: [] for split in document.splits}
    for shard in read_shards(root, document.file("rows")):
        assert [file.name for file in shard.files] == list(format_.file_names(shard.name))
        assert shard.samples > 0
        found[shard.split].append(shard)
    for split, facts in document.splits.items():
        shards = found[split]
        count = facts.end_shard if format_.counted else 0
        stem = f"{document.dataset}-{split}"
        planned = (
            format_.shard_name(stem, number, count)
            for number in range(facts.first_shard, facts.end_shard)
        )
        assert all(shard.name in planned for shard in shards), "names are in another order"
        assert facts.shards == len(shards)
        assert facts.samples == sum(shard.samples for shard in shards)
        assert facts.bytes == sum(file.bytes for shard in shards for file in shard.files)
    return found


def _contents(
    root: Store,
    document: SegmentDocument,
    split: str,
    shards: Sequence[Shard],
    index: Sequence[IndexedSample],
) -> Iterator[SampleContent]:
    groups = groupby(index, key=lambda sample: sample.shard)
    indexed = {name: list(group) for name, group in groups}
    assert list(indexed) == [shard.name for shard in shards], f"the shards of {split}"
    for shard in shards:
        for file in shard.files:
            same_bytes(root, file.path, file.bytes, file.sha256)
        key, own = layout.shard_key(document.id, split, shard.name), indexed[shard.name]
        assert len(own) == shard.samples, f"{key}: the index has {len(own)} samples"
        yield from _read_shard(root, key, document.shape.use, own)
        if document.shape.format == "webdataset":
            _check_archive(key, bytes(root.get(key)), own)


def _check_reader_indexes(root: Store, document: SegmentDocument, rows: pa.Table) -> None:
    """Every shard has the index files of its format, with what its rows say, and no others."""
    kinds = shard_format(*document.shape.use).indexes
    named, first_row = set(), 0
    for shard in read_shards(root, document.file("rows")):
        assert shard.first_row == first_row
        own = Spool.of(rows.slice(first_row, shard.samples).to_batches(), INDEXED)
        first_row += shard.samples
        wanted = list(index_files(kinds, shard.name, own))
        assert [(index.role, index.name, index.bytes, index.sha256) for index in shard.indexes] == [
            (file.kind, file.name, file.bytes, file.sha256) for file, _ in wanted
        ]
        for index, (file, data) in zip(shard.indexes, wanted, strict=True):
            assert index.path == layout.reader_index_key(
                document.id, file.kind, shard.split, file.name
            )
            assert same_bytes(root, index.path, file.bytes, file.sha256) == data
            named.add(index.path)
    manifests = {file.path for file in document.files}
    keys = {info.key for page in root.list(layout.index_prefix(document.id)) for info in page}
    others = {key for key in keys - manifests if not key.endswith((".parquet", ".npz"))}
    assert others == named, f"{document.id}: other files beside the indexes"


def _read_shard(
    root: Store, key: str, use: FormatUse, samples: Sequence[IndexedSample]
) -> Iterator[SampleContent]:
    with shard_format(*use).open(root, key) as reader:
        for sample in samples:
            content = SampleContent(sample.key, reader.read(sample))
            assert content.label == sample.label, f"{key}: {sample.key} has another label"
            yield content


def _check_archive(key: str, data: bytes, samples: Sequence[IndexedSample]) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member.offset_data for member in archive}
    for sample in samples:
        for part in sample.parts:
            name = f"{sample.key}.{part.ext}"
            assert members.pop(name) == part.offset, f"{key}: {name} is at another offset"
    assert not members, f"{key}: not in the index: {sorted(members)}"


def _check_listing(root: Store, segment: str, shards: Mapping[str, Sequence[Shard]]) -> None:
    """Shards and nothing else: what a tool that lists the prefix finds."""
    pages = root.list(layout.shards_prefix(segment))
    wanted = {file.path for own in shards.values() for shard in own for file in shard.files}
    assert {info.key for page in pages for info in page} == wanted


def check_cache(root: Store, segment: SegmentContent, cache: str) -> CacheDocument:
    """Check everything that cache.json says: all samples of its segment, in their order."""
    document = read_cache(root, segment.document.id, cache)
    assert document is not None, f"there is no cache {cache} of {segment.document.id}"
    assert (document.segment, document.id) == (segment.document.id, cache)
    assert document.dataset == segment.document.dataset
    assert set(document.files) == {split for split, own in segment.samples.items() if own}
    with tempfile.TemporaryDirectory() as folder:
        for split, file in document.files.items():
            assert (file.segment, file.split) == (document.segment, split)
            path = Path(folder) / f"{len(split)}.mdb"
            _check_cache_file(root, file, document, segment.samples[split], path)
    return document


def _check_cache_file(
    root: Store,
    file: CacheFile,
    document: CacheDocument,
    samples: Sequence[SampleContent],
    path: Path,
) -> None:
    path.write_bytes(same_bytes(root, file.path, file.bytes, file.sha256))
    place = layout.place_of_cache_file(file.path)
    facts = CacheFileFacts(file.bytes, file.sha256, file.digest, file.records, place)
    with closing(open_file(path, facts, verify=True)) as reader:
        reader.verify()
        assert file.fields == {field.name: field.kind for field in reader.schema.fields}
        assert len(reader) == len(samples), f"{file.path} has {len(reader)} records"
        for number, sample in enumerate(samples):
            _check_record(reader[number], document, sample, file.path)


def _check_record(
    record: Mapping[str, Array], document: CacheDocument, sample: SampleContent, key: str
) -> None:
    where = f"{key}: {sample.key}"
    assert bytes(record[KEY]).decode() == sample.key, where
    if document.kind == "built":
        return  # by a function that only the test knows
    wanted = _fields(document, sample, LABEL in record)
    assert set(record) == {KEY, *wanted}, where
    for name, value in wanted.items():
        assert value is None or np.array_equal(record[name], value), f"{where}: {name}"


def _fields(document: CacheDocument, sample: SampleContent, labelled: bool) -> dict[str, Any]:
    """What the fields of a record should contain; None for a decoded image."""
    kind: Any = document.kind
    decoders = Decoders(document.decoders)
    wanted: dict[str, Any] = {LABEL: sample.label} if labelled else {}
    for ext, data in sample.parts.items():
        if ext == LABEL_EXT and labelled:
            continue
        names = field_names(ext, kind, decoders)
        if kind == "decoded" and decoders.is_image(ext):
            wanted[names[0]] = None
        elif kind == "decoded" and (decoder := decoders.of(ext)):
            wanted |= zip(names, decoder.decode(data, sample.key, "").values(), strict=True)
        else:
            wanted[names[0]] = np.frombuffer(data, np.uint8)
    return wanted
