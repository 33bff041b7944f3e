"""Writes a lost version.json again, from the segments that lead to its ID.

The ID covers segments, omitted rows, caches, classes and splits; manifests and lists have their
digests in their names. The inputs digest is that of the tag which named the version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path

from larder.errors import DamageError, LarderError, NotFoundError, RetryableError, StoreError
from larder.manifest.digest import sha256_hex
from larder.manifest.schemas import SHARDS
from larder.pipeline.job import Job, ManifestRef, UsedSegment, listed, scratch
from larder.pipeline.listed import listed_shards, listed_splits
from larder.pipeline.manifests import read_ref
from larder.pipeline.omitted_again import Lost, find_lost, omitted_again
from larder.pipeline.publish import version_document
from larder.pipeline.repairing_files import Unwritten, work_manifest
from larder.pipeline.verifying_job import VerifyJob, readable
from larder.store.base import Store
from larder.versions import layout
from larder.versions.conditions import KEPT
from larder.versions.documents import (
    CacheDocument,
    CacheFile,
    FileFacts,
    SegmentDocument,
    SegmentUse,
    VersionDocument,
    parse_document,
)
from larder.versions.identity import own_cache_id, split_rule, version_id
from larder.versions.omitted import Omitted, encode_omitted
from larder.versions.tags import TagEntry, read_tag

__all__ = ["version_again"]

_LAST = "\U0010ffff"

_MOST_SEGMENTS = 10
_MOST_TRIED = 200
"""Maximum number of lists of segments that are tried."""


class _Unknown(Exception):  # noqa: N818 - it is no error of the program
    """Why the document cannot be written again."""


def version_again(job: VerifyJob, root: Store, version: str) -> VersionDocument | str:
    """The document of a version, from what it was made of.

    Args:
        job: The verification, with the dataset file that the version was made from.
        root: The dataset's root.
        version: ID of the version.

    Returns:
        The document, or why it cannot be written again.

    Raises:
        StoreError: The storage refuses access.
        RetryableError: The storage kept failing.
    """
    try:
        with scratch() as folder:
            return _Search(job, root, version, folder).document()
    except _Unknown as error:
        return str(error)
    except (StoreError, RetryableError):
        raise
    except LarderError as error:
        return f"{error.where}: {error.message}" if error.where else error.message


class _Search:
    """The search for what a version was made of.

    Args:
        job: The verification.
        root: The dataset's root.
        version: ID of the version.
        folder: A private directory.
    """

    def __init__(self, job: VerifyJob, root: Store, version: str, folder: Path) -> None:
        self._dataset = job.dataset
        self._cluster = job.cluster
        self._root = root
        self._id = version
        self._folder = folder
        self._lost: dict[str, Lost] = {}

    def document(self) -> VersionDocument:
        """The document whose ID is that of the version."""
        if self._dataset.on_bad_key == "skip" or self._dataset.samples.missing == "skip":
            raise _Unknown("nothing else says how many keys it left out")
        inputs, inventory, classes = self._inputs(), self._inventory(), self._classes()
        documents = {segment.id: segment for segment in self._segments()}
        for segments in chain(self._like_others(documents), _lists(list(documents.values()))):
            for omitted in self._omitted(segments, inventory):
                if self._leads_to_it(segments, omitted, classes):
                    return self._written(segments, omitted, classes, inputs, inventory)
        raise _Unknown("no segments that are still there, with this dataset file, lead to its ID")

    def _inputs(self) -> str:
        """The inputs digest with which a tag named the version."""
        found: set[str] = set()
        for info in listed(self._root, layout.tag_key("").removesuffix(".json")):
            name = info.key.removeprefix("tags/").removesuffix(".json")
            try:
                tag = read_tag(self._root, name)
            except DamageError:
                continue
            if tag is not None:
                entries = (TagEntry(tag.version, tag.inputs), *tag.history)
                found |= {entry.inputs for entry in entries if entry.version == self._id}
        if len(found) != 1:
            known = "several" if found else "none"
            raise _Unknown(f"of its inputs digest the tags know {known}")
        return found.pop()

    def _inventory(self) -> ManifestRef:
        prefix = f"{layout.version_prefix(self._id)}manifests/"
        found = []
        for info in listed(self._root, prefix):
            name = info.key.removeprefix(prefix)
            if name.startswith("skipped-"):
                raise _Unknown("nothing else says how many samples it left out as bad")
            if name.startswith("objects-"):
                try:
                    found.append(work_manifest(self._root, info.key))
                except (DamageError, NotFoundError):
                    continue
        if len(found) != 1:
            raise _Unknown(f"there are {len(found)} inventories of it that are not damaged")
        return found[0]

    def _classes(self) -> tuple[str, ...]:
        data = readable(self._root, layout.classes_key(self._id))
        if self._dataset.labels is None or data is None:
            return ()
        try:
            return tuple(json.loads(data))
        except ValueError:
            raise _Unknown("classes.json is damaged, too") from None

    def _segments(self) -> Iterator[SegmentDocument]:
        """All complete segments of the dataset, with one request for each."""
        prefix, after = layout.segments_prefix(), ""
        while True:
            page = next(iter(self._root.list(prefix, start_after=after)), [])
            if not page:
                return
            segment = page[0].key.split("/")[1]
            key, after = layout.segment_key(segment), f"{layout.segment_prefix(segment)}{_LAST}"
            try:
                yield parse_document(SegmentDocument, readable(self._root, key) or b"", key)
            except DamageError:
                continue

    def _like_others(
        self, documents: Mapping[str, SegmentDocument]
    ) -> Iterator[tuple[SegmentDocument, ...]]:
        """The lists that come before or after those of the versions whose documents are there."""
        for info in listed(self._root, "versions/"):
            if not info.key.endswith("/version.json"):
                continue
            try:
                data = readable(self._root, info.key)
                other = parse_document(VersionDocument, data or b"", info.key)
            except DamageError:
                continue
            own = tuple(documents[use.id] for use in other.segments if use.id in documents)
            yield from (each for each in (own, own[:-1]) if each)
            for segment in documents.values():
                if segment not in own:
                    yield (*own, segment)

    def _omitted(
        self, segments: Sequence[SegmentDocument], inventory: ManifestRef
    ) -> Iterator[dict[tuple[str, str], Omitted]]:
        if len(segments) == 1:
            yield {}
        for segment in segments:
            if segment.id not in self._lost:
                lost = find_lost(self._root, segment, inventory, self._folder)
                self._lost[segment.id] = lost
        own = [self._lost[segment.id] for segment in segments]
        yield from omitted_again(self._root, segments, own, self._folder)

    def _leads_to_it(
        self,
        segments: Sequence[SegmentDocument],
        omitted: Mapping[tuple[str, str], Omitted],
        classes: tuple[str, ...],
    ) -> bool:
        found = version_id(
            self._dataset.name,
            [(segment.id, self._cache(segment)) for segment in segments],
            omitted,
            classes=classes,
            split_names=self._dataset.split_names,
            rule=split_rule(self._dataset),
        )
        return found == self._id

    def _cache(self, segment: SegmentDocument) -> str | None:
        return own_cache_id(self._dataset, segment.id)

    def _written(
        self,
        segments: Sequence[SegmentDocument],
        omitted: Mapping[tuple[str, str], Omitted],
        classes: tuple[str, ...],
        inputs: str,
        inventory: ManifestRef,
    ) -> VersionDocument:
        if len(segments) > 1 and any(segment.skipped for segment in segments):
            raise _Unknown("nothing else says how many samples it left out as bad")
        encoded, data = encode_omitted(omitted)
        files: tuple[FileFacts, ...] = ()
        if data:
            sha256 = sha256_hex(data)
            key = layout.omitted_key(self._id, sha256)
            files = (FileFacts(key, len(data), sha256, "omitted"),)
        job = Job(
            dataset=self._dataset,
            cluster=self._cluster,
            inputs=inputs,
            version=self._id,
            new=None,
            kept=(),
            classes=classes,
            expected=None,
            conditions=KEPT,
            published=False,
            skipped=sum(segment.skipped for segment in segments),
            inventory=inventory,
            files=files,
        )
        used = []
        for segment in segments:
            rows = read_ref(self._root, ManifestRef.of(segment.file("shards")), SHARDS)
            own = {split: facts for (use, split), facts in encoded.items() if use == segment.id}
            use = SegmentUse(segment.id, own, self._cache(segment))
            facts = listed_splits(listed_shards(rows, omitted))
            format_ = segment.shape.use
            one = UsedSegment(use, format_, segment.splits, facts, segment.files)
            used.append((one, self._cache_files(segment)))
        return version_document(job, Unwritten(self._root), used, None, omitted)

    def _cache_files(self, segment: SegmentDocument) -> tuple[CacheFile, ...]:
        cache = self._cache(segment)
        if cache is None:
            return ()
        key = layout.cache_key(segment.id, cache)
        try:
            document = parse_document(CacheDocument, readable(self._root, key) or b"", key)
        except DamageError:
            raise _Unknown(f"{key} is damaged or missing, too") from None
        return tuple(document.files.values())


def _lists(segments: Sequence[SegmentDocument]) -> Iterator[tuple[SegmentDocument, ...]]:
    """The lists that a version may have: shard numbers go on from one segment to the next."""
    ordered = sorted(segments, key=lambda each: sum(s.first_shard for s in each.splits.values()))
    if len(ordered) > _MOST_SEGMENTS:
        raise _Unknown(f"it may be made of any of {len(ordered)} segments")
    some = chain.from_iterable(combinations(ordered, count) for count in range(1, len(ordered) + 1))
    for tried, segments in enumerate(filter(_follow, some)):
        if tried == _MOST_TRIED:
            raise _Unknown(f"it may be made of any of {len(ordered)} segments")
        yield segments


def _follow(segments: Sequence[SegmentDocument]) -> bool:
    """Whether the shards of each segment come after those of the segments before it."""
    ends: dict[str, int] = {}
    for segment in segments:
        for split, facts in segment.splits.items():
            if facts.first_shard < ends.get(split, 0):
                return False
            ends[split] = facts.end_shard
    return True
