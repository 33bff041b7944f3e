"""Checks that everything published is complete and correct: the final check of many tests.

It reads what a reader would read and relies only on the files themselves: every document is checked
by its own digest, every file by its length and sha256, every part by the index and its CRC-32C as
the format of its shard reads it back, every tar archive also with `tarfile`, every cache by its
records. What a version lists, counts and covers by its digest is computed again from there.

`larder verify` checks the same in other ways, in bounded memory. Neither uses the other on purpose:
random histories have to satisfy both, so a mistake in one of them is found.
"""

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from larder.config.patterns import expand_braces
from larder.errors import StoreError
from larder.manifest.sealed import StoredFile, unseal
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import CacheDocument, OmittedRows, VersionDocument
from larder.versions.identity import content_digest
from larder.versions.index import Shard
from larder.versions.publish import read_version
from tests.support.checked_segment import (
    SampleContent,
    SegmentContent,
    check_cache,
    check_segment,
    same_bytes,
)

_INLINE = 1_000
_PATTERNS = 100
_PATTERN = re.compile(r"[^{}]*(\{\d+\.\.\d+\}[^{}]*)?")


@dataclass(frozen=True, slots=True)
class Published:
    """A version that was checked.

    ``samples`` are by split, without those that are omitted, in the order in which they are read;
    ``shards`` has the sha256 of every file of the listed shards by its path.
    """

    version: VersionDocument
    samples: Mapping[str, list[SampleContent]]
    shards: Mapping[str, str]

    def read_by_pattern(self, root: Store) -> dict[str, list[SampleContent]]:
        """By split, what webdataset reads by the patterns: also omitted rows of listed shards."""
        return {
            split: list(_as_webdataset_reads(root, facts.patterns))
            for split, facts in self.version.splits.items()
        }


def _as_webdataset_reads(root: Store, patterns: Sequence[str]) -> Iterator[SampleContent]:
    """Through its own expansion of patterns, its reader of tar files, and its grouping."""
    from webdataset.shardlists import expand_urls
    from webdataset.tariterators import group_by_keys, tar_file_expander

    keys = expand_urls("::".join(patterns)) if patterns else []
    shards = ({"url": key, "stream": io.BytesIO(root.get(key))} for key in keys)
    for sample in group_by_keys(tar_file_expander(shards)):
        parts = {ext: data for ext, data in sample.items() if not ext.startswith("__")}
        yield SampleContent(sample["__key__"], parts)


def check_all(root: Store) -> dict[str, Published]:
    """Check every version, segment and cache of a dataset, and that every tag names a version.

    Segments and caches that no version uses are whole if they have a document.
    """
    keys = list(_keys(root))
    segments = _Segments(root)
    found = {
        key.split("/")[1]: _Check(root, key.split("/")[1], segments).published()
        for key in keys
        if key.endswith("/version.json")
    }
    for key in keys:
        names = key.split("/")
        if key.endswith("/segment.json"):
            segments.segment(names[1])
        elif key.endswith("/cache.json"):
            segments.cache(names[1], names[3])
        elif key.startswith("tags/"):
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
    return _Check(root, version, _Segments(root)).published()


class _Segments:
    """The segments and caches of a dataset, each checked once."""

    def __init__(self, root: Store) -> None:
        self._root = root
        self._segments: dict[str, SegmentContent] = {}
        self._caches: dict[tuple[str, str], CacheDocument] = {}

    def segment(self, segment: str) -> SegmentContent:
        if segment not in self._segments:
            self._segments[segment] = check_segment(self._root, segment)
        return self._segments[segment]

    def cache(self, segment: str, cache: str) -> CacheDocument:
        if (segment, cache) not in self._caches:
            content = self.segment(segment)
            self._caches[segment, cache] = check_cache(self._root, content, cache)
        return self._caches[segment, cache]


@dataclass(frozen=True, slots=True)
class _Listed:
    """A shard with live samples: where it is, and the rows of its own that are omitted."""

    segment: str
    split: str
    shard: Shard
    omitted: tuple[tuple[int, int], ...]

    @property
    def path(self) -> str:
        return layout.shard_key(self.segment, self.split, self.shard.name)


class _Check:
    def __init__(self, root: Store, version: str, segments: _Segments) -> None:
        document = read_version(root, version)
        assert document is not None, f"there is no version {version}"
        assert document.id == version
        self.root = root
        self.document = document
        self.segments = segments
        self.used = [segments.segment(use.id) for use in document.segments]
        assert len({use.id for use in document.segments}) == len(document.segments)
        assert {segment.document.dataset for segment in self.used} <= {document.dataset}

    def published(self) -> Published:
        self._check_files()
        samples: dict[str, list[SampleContent]] = {split: [] for split in self.document.splits}
        listed: list[_Listed] = []
        omitted = self._omitted()
        for segment in self.used:
            for split, own in segment.samples.items():
                gone = omitted.pop((segment.document.id, split), set())
                assert all(0 <= row < len(own) for row in gone), "rows that do not exist"
                if split not in samples:  # the splits have changed since
                    assert len(gone) == len(own), f"samples of {split}, which is no split"
                    continue
                samples[split] += [each for row, each in enumerate(own) if row not in gone]
                listed += _listed(segment, split, gone)
        assert not omitted, f"rows of splits that do not exist: {sorted(omitted)}"
        _check_keys(samples)
        self._check_splits(listed, samples)
        self._check_cache(listed)
        self._check_digest(listed)
        return Published(self.document, samples, _sums(listed))

    def _check_files(self) -> None:
        """The manifests of the segments in their order, and the version's own files."""
        files = self.document.files
        for file in files:
            same_bytes(self.root, file.path, file.bytes, file.sha256)
        for role in ("rows", "sources"):
            wanted = [segment.document.file(role) for segment in self.used]
            assert [file for file in files if file.role == role] == wanted, f"the files {role}"
        assert len([file for file in files if file.role == "objects"]) == 1
        assert len({file.path for file in files}) == len(files), "a file twice"
        own = layout.version_prefix(self.document.id)
        for file in files:
            if file.role in ("omitted", "list", "objects", "classes", "readers"):
                assert file.path.startswith(own)
            else:
                roles = ("rows", "sources", "skipped")
                assert file.role in roles
        self._check_classes([file for file in files if file.role == "classes"])

    def _check_classes(self, files: Sequence[StoredFile]) -> None:
        """The names and numbers of the classes, for programs without Larder."""
        found = [list(json.loads(bytes(self.root.get(file.path))).items()) for file in files]
        classes = self.document.classes
        assert found == ([[(name, at) for at, name in enumerate(classes)]] if classes else [])

    def _omitted(self) -> dict[tuple[str, str], set[int]]:
        every = {
            (use.id, split): rows
            for use in self.document.segments
            for split, rows in use.omitted.items()
        }
        files = [file for file in self.document.files if file.role == "omitted"]
        if not files:
            ranges = sum(len(rows.ranges) for rows in every.values())
            assert ranges <= _INLINE, f"{ranges} ranges in version.json"
            return {place: _rows(rows, rows.ranges) for place, rows in every.items()}
        (file,) = files
        table = np.load(io.BytesIO(self.root.get(file.path)), allow_pickle=False)
        assert table.dtype == np.dtype("<i8")
        assert table.shape == (len(table), 2)
        assert len(table) > _INLINE
        found, row = {}, 0
        for place, rows in every.items():
            assert not rows.ranges
            assert rows.first == row
            row = rows.stop
            found[place] = _rows(rows, table[rows.first : rows.stop].tolist())
        assert row == len(table)
        return found

    def _check_splits(
        self, listed: Sequence[_Listed], samples: Mapping[str, list[SampleContent]]
    ) -> None:
        names = [file.name for each in listed for file in each.shard.files]
        assert len(set(names)) == len(names), "two shards with the same name"
        lists = {file.path: file for file in self.document.files if file.role == "list"}
        for split, facts in self.document.splits.items():
            own = [each for each in listed if each.split == split]
            paths = [each.path for each in own]
            assert list(chain.from_iterable(map(expand_braces, facts.patterns))) == paths
            assert all(_PATTERN.fullmatch(pattern) for pattern in facts.patterns)
            assert facts.shards == len(own)
            assert facts.bytes == sum(file.bytes for each in own for file in each.shard.files)
            assert facts.samples == len(samples[split])
            gone = (stop - start for each in own for start, stop in each.omitted)
            assert facts.omitted == sum(gone)
            if len(facts.patterns) > _PATTERNS:
                data = "".join(f"{path}\n" for path in paths).encode()
                key = layout.list_key(self.document.id, split, hashlib.sha256(data).hexdigest())
                assert bytes(self.root.get(lists.pop(key).path)) == data
        assert not lists, f"lists of no split: {sorted(lists)}"

    def _check_cache(self, listed: Sequence[_Listed]) -> None:
        """Its files are those of the segments, in order, that have live samples."""
        facts = self.document.cache
        if facts is None:
            assert {use.cache for use in self.document.segments} <= {None}
            return
        wanted: dict[str, list[Any]] = {}
        live = {(each.segment, each.split) for each in listed}
        for use in self.document.segments:
            assert use.cache is not None, f"the segment {use.id} has no cache"
            cache = self.segments.cache(use.id, use.cache)
            assert cache.kind == facts.kind
            for split, file in cache.files.items():
                if (use.id, split) in live:
                    wanted.setdefault(split, []).append(file)
        assert {split: list(files) for split, files in facts.splits.items()} == wanted

    def _check_digest(self, listed: Sequence[_Listed]) -> None:
        shards = [each.shard._replace(omitted=each.omitted) for each in listed]
        found = content_digest(shards, self.document.classes, self.document.cache)
        assert self.document.digest == found


def _rows(facts: OmittedRows, ranges: Sequence[Sequence[int]]) -> set[int]:
    """The rows of sorted ranges that do not touch."""
    edges = [edge for pair in ranges for edge in pair]
    assert edges == sorted(set(edges)), f"{edges} are not sorted, or touch"
    rows = {row for start, stop in ranges for row in range(start, stop)}
    assert facts.count == len(rows) > 0
    return rows


def _listed(segment: SegmentContent, split: str, gone: set[int]) -> Iterator[_Listed]:
    first = 0
    for shard in segment.shards[split]:
        own = sorted(row - first for row in gone if first <= row < first + shard.samples)
        first += shard.samples
        if len(own) < shard.samples:
            starts = [row for row in own if row - 1 not in own]
            stops = [row + 1 for row in own if row + 1 not in own]
            ranges = tuple(zip(starts, stops, strict=True))
            yield _Listed(segment.document.id, split, shard, ranges)


def _check_keys(samples: Mapping[str, list[SampleContent]]) -> None:
    keys = [sample.key for own in samples.values() for sample in own]
    twice = sorted(key for key, count in Counter(keys).items() if count > 1)
    assert not twice, f"more than once in the version: {twice}"


def _sums(listed: Sequence[_Listed]) -> dict[str, str]:
    return {file.path: file.sha256 for each in listed for file in each.shard.files}
