"""Checks that everything published is complete and correct: the final check of many tests.

It reads what a reader would read and relies only on the files themselves: every document is checked
by its own digest, every file by its length and sha256, every part by the index and its CRC-32C as
the format of its shard reads it back, every tar archive also with `tarfile`, every cache by its
records.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from larder.cache.fields import KEY
from larder.cache.file import open_file
from larder.cache.layout import CacheFileFacts
from larder.errors import StoreError
from larder.manifest.files import read_manifest
from larder.manifest.schemas import SAMPLES, SHARDS
from larder.readers.braces import expand
from larder.samples.indexed import IndexedSample, read_index
from larder.shards.formats import shard_format
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import CacheFile, VersionDocument, unseal
from larder.versions.identity import ShardIdentity, content_digest
from larder.versions.publish import read_segment, read_version

__all__ = ["Published", "SampleContent", "check_all", "check_version"]


@dataclass(frozen=True, slots=True)
class SampleContent:
    """A sample in a shard: the bytes of each part by extension, including the label."""

    key: str
    parts: Mapping[str, bytes]

    @property
    def label(self) -> int | None:
        """The number in the part ``cls``."""
        return int(self.parts["cls"]) if "cls" in self.parts else None


@dataclass(frozen=True, slots=True)
class Published:
    """A version that was checked.

    Attributes:
        version: The version document.
        samples: By split, in the order of the shards.
        shards: sha256 of each shard by its path below the dataset's root.
    """

    version: VersionDocument
    samples: Mapping[str, list[SampleContent]]
    shards: Mapping[str, str]


def check_all(root: Store) -> dict[str, Published]:
    """Check every version of a dataset, and that every tag names one.

    Args:
        root: The dataset's root, ``STORAGE/larder/DATASET/``.

    Returns:
        The versions by ID.

    Raises:
        AssertionError: Something is missing, or differs from what a document says.
        DamageError: A document is damaged.
    """
    keys = list(_keys(root))
    versions = [key.split("/")[1] for key in keys if key.endswith("/version.json")]
    found = {version: check_version(root, version) for version in versions}
    for key in keys:
        if key.startswith("tags/"):
            named = unseal(root.get(key), key)["version"]
            assert named in found, f"{key} names {named}, which is not published"
    return found


def _keys(root: Store) -> Iterator[str]:
    try:
        yield from (info.key for page in root.list() for info in page)
    except StoreError as error:
        if error.code != "store.missing":  # a directory that does not exist yet
            raise


def check_version(root: Store, version: str) -> Published:
    """Check one version; see `check_all`."""
    document = read_version(root, version)
    assert document is not None, f"there is no version {version}"
    assert document.id == version
    formats = {}
    for use in document.segments:
        segment = read_segment(root, use.id)
        assert segment is not None, f"there is no segment {use.id}"
        formats[use.id] = segment.shape.format
    with tempfile.TemporaryDirectory() as name:
        return _check(root, document, formats, Path(name))


def _check(
    root: Store, document: VersionDocument, formats: Mapping[str, str], folder: Path
) -> Published:
    files = {}
    for file in document.files:
        data = bytes(root.get(file.path))
        _same(file.path, data, file.bytes, file.sha256)
        files[file.role] = folder / f"{file.role}.parquet"
        files[file.role].write_bytes(data)
    shards = [row for batch in read_manifest(files["shards"], SHARDS) for row in batch.to_pylist()]
    index = _index(files["samples"])
    samples: dict[str, list[SampleContent]] = {split: [] for split in document.splits}
    sums = {}
    for shard in shards:
        key = layout.shard_key(shard["segment"], shard["split"], shard["name"])
        data = bytes(root.get(key))
        _same(key, data, shard["bytes"], shard["sha256"])
        sums[key] = shard["sha256"]
        indexed = index.pop((shard["segment"], shard["split"], shard["name"]), [])
        assert len(indexed) == shard["samples"], f"{key}: the index has {len(indexed)} samples"
        if indexed:  # not one of a shard's other files
            format_name = formats[shard["segment"]]
            samples[shard["split"]] += _check_shard(root, key, format_name, indexed)
            if format_name == "webdataset":
                _check_archive(key, data, indexed)
    assert not index, f"the shards {sorted(index)} are not listed"
    _check_files(shards, formats)
    _check_splits(document, shards, samples)
    _check_listing(root, document, sums)
    _check_caches(root, document, samples, folder)
    names = ("split", "name", "bytes", "sha256")
    facts = [ShardIdentity(*(row[name] for name in names)) for row in shards]
    assert document.digest == content_digest(facts, document.classes, document.cache)
    return Published(document, samples, sums)


def _same(key: str, data: bytes, size_bytes: int, sha256: str) -> None:
    assert len(data) == size_bytes, f"{key} has {len(data)} bytes, not {size_bytes}"
    assert hashlib.sha256(data).hexdigest() == sha256, f"{key} is not what was published"


def _index(path: Path) -> dict[tuple[str, str, str], list[IndexedSample]]:
    """The samples of each shard, by its segment, split and name."""
    found = defaultdict(list)
    for batch in read_manifest(path, SAMPLES):
        places = (batch.column(name).to_pylist() for name in ("segment", "split", "shard"))
        for *place, sample in zip(*places, read_index([batch]), strict=True):
            found[tuple(place)].append(sample)
    return found


def _check_shard(
    root: Store, key: str, format_name: str, samples: list[IndexedSample]
) -> list[SampleContent]:
    found = []
    with shard_format(format_name).open(root, key) as reader:
        for sample in samples:
            content = SampleContent(sample.key, reader.read(sample))
            assert content.label == sample.label, f"{key}: {sample.key} has another label"
            found.append(content)
    return found


def _check_archive(key: str, data: bytes, samples: list[IndexedSample]) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member.offset_data for member in archive}
    for sample in samples:
        for part in sample.parts:
            name = f"{sample.key}.{part.ext}"
            assert members.pop(name) == part.offset, f"{key}: {name} is at another offset"
    assert not members, f"{key}: not in the index: {sorted(members)}"


def _check_files(files: list[dict[str, Any]], formats: Mapping[str, str]) -> None:
    """Every shard has the files of its format, in their order."""
    wanted = [
        (file["segment"], file["split"], name)
        for file in files
        if file["samples"]
        for name in shard_format(formats[file["segment"]]).file_names(file["name"])
    ]
    assert [(file["segment"], file["split"], file["name"]) for file in files] == wanted


def _check_splits(
    document: VersionDocument,
    shards: list[dict[str, Any]],
    samples: Mapping[str, list[SampleContent]],
) -> None:
    for split, facts in document.splits.items():
        own = [shard for shard in shards if shard["split"] == split]
        firsts = [shard for shard in own if shard["samples"]]
        paths = [layout.shard_key(shard["segment"], split, shard["name"]) for shard in firsts]
        assert list(chain.from_iterable(map(expand, facts.patterns))) == paths
        assert facts.shards == len(firsts)
        assert facts.bytes == sum(shard["bytes"] for shard in own)
        assert facts.samples == len(samples[split])
    assert {shard["split"] for shard in shards} <= set(document.splits)


def _check_listing(root: Store, document: VersionDocument, shards: Mapping[str, str]) -> None:
    """Shards and nothing else: what a tool that lists the prefix finds."""
    prefixes = [f"{layout.segment_prefix(use.id)}shards/" for use in document.segments]
    listed = {info.key for prefix in prefixes for page in root.list(prefix) for info in page}
    assert listed == set(shards)


def _check_caches(
    root: Store,
    document: VersionDocument,
    samples: Mapping[str, list[SampleContent]],
    folder: Path,
) -> None:
    if document.cache is None:
        return
    assert set(document.cache.splits) == {split for split in samples if samples[split]}
    for split, files in document.cache.splits.items():
        keys: list[str] = []
        for file in files:
            keys += _check_cache_file(root, file, folder / f"{file.sha256}.mdb")
        assert keys == [sample.key for sample in samples[split]], f"cache of {split}"


def _check_cache_file(root: Store, file: CacheFile, path: Path) -> list[str]:
    path.write_bytes(root.get(file.path))
    facts = CacheFileFacts(file.bytes, file.sha256, file.digest, file.records)
    with closing(open_file(path, facts, verify=True)) as reader:
        reader.verify()
        return [bytes(record[KEY]).decode() for record in reader]
