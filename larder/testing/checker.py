"""Checks that everything published is complete and correct: the final check of many tests.

It reads what a reader would read and relies only on the files themselves: every document is checked
by its own digest, every file by its length and sha256, every shard with `tarfile`, every part by
the index and its CRC32C, every cache by its records.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import google_crc32c

from larder.cache.fields import KEY
from larder.cache.file import open_file
from larder.cache.layout import CacheFileFacts
from larder.errors import StoreError
from larder.manifest.files import read_manifest
from larder.manifest.schemas import SAMPLES, SHARDS
from larder.readers.braces import expand
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import CacheFile, VersionDocument, unseal
from larder.versions.identity import content_digest
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
    """Check every version of a dataset, and that every tag and inputs document names one.

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
        if key.startswith(("tags/", "inputs/")):
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
    for use in document.segments:
        segment = read_segment(root, use.id)
        assert segment is not None, f"there is no segment {use.id}"
        assert (segment.splits, segment.cache) == (document.splits, document.cache)
    with tempfile.TemporaryDirectory() as name:
        return _check(root, document, Path(name))


def _check(root: Store, document: VersionDocument, folder: Path) -> Published:
    files = {}
    for file in document.files:
        data = bytes(root.get(file.path))
        _same(file.path, data, file.bytes, file.sha256)
        files[file.role] = folder / f"{file.role}.parquet"
        files[file.role].write_bytes(data)
    shards = [row for batch in read_manifest(files["shards"], SHARDS) for row in batch.to_pylist()]
    index = [row for batch in read_manifest(files["samples"], SAMPLES) for row in batch.to_pylist()]
    samples: dict[str, list[SampleContent]] = {split: [] for split in document.splits}
    sums = {}
    for shard in shards:
        key = layout.shard_key(shard["segment"], shard["split"], shard["name"])
        data = bytes(root.get(key))
        _same(key, data, shard["bytes"], shard["sha256"])
        sums[key] = shard["sha256"]
        names = (shard["segment"], shard["split"], shard["name"])
        rows = [row for row in index if (row["segment"], row["split"], row["shard"]) == names]
        assert len(rows) == shard["samples"], f"{key}: the index has {len(rows)} samples"
        samples[shard["split"]] += _check_shard(key, data, rows)
    _check_splits(document, shards, samples)
    _check_listing(root, document, sums)
    _check_caches(root, document, samples, folder)
    facts = [(row["split"], row["name"], row["bytes"], row["sha256"]) for row in shards]
    assert document.digest == content_digest(facts, document.classes, document.cache)
    return Published(document, samples, sums)


def _same(key: str, data: bytes, size_bytes: int, sha256: str) -> None:
    assert len(data) == size_bytes, f"{key} has {len(data)} bytes, not {size_bytes}"
    assert hashlib.sha256(data).hexdigest() == sha256, f"{key} is not what was published"


def _check_shard(key: str, data: bytes, rows: list[dict[str, Any]]) -> list[SampleContent]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member.offset_data for member in archive}
    found = []
    for row in rows:
        parts = {}
        for part in row["parts"]:
            name = f"{row['key']}.{part['ext']}"
            assert members.pop(name) == part["offset"], f"{key}: {name} is at another offset"
            body = data[part["offset"] : part["offset"] + part["length"]]
            assert google_crc32c.value(body) == part["crc32c"], (
                f"{key}: {name} has another checksum"
            )
            parts[part["ext"]] = body
        sample = SampleContent(row["key"], parts)
        assert sample.label == row["label"]
        found.append(sample)
    assert not members, f"{key}: not in the index: {sorted(members)}"
    return found


def _check_splits(
    document: VersionDocument,
    shards: list[dict[str, Any]],
    samples: Mapping[str, list[SampleContent]],
) -> None:
    for split, facts in document.splits.items():
        own = [shard for shard in shards if shard["split"] == split]
        paths = [layout.shard_key(shard["segment"], split, shard["name"]) for shard in own]
        assert list(chain.from_iterable(map(expand, facts.patterns))) == paths
        assert facts.shards == len(own)
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
