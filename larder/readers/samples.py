"""The samples of a split, read back from its shards through the indexes of its segments."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from larder.disk import disk_errors
from larder.errors import DamageError
from larder.manifest.files import read_manifest
from larder.manifest.schemas import SAMPLES
from larder.samples.indexed import IndexedSample, read_index
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.temporary import workshop
from larder.versions import layout
from larder.versions.documents import MAKE_AGAIN, FileFacts, SegmentDocument, VersionDocument
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import own_file_errors, read_segment

__all__ = ["Sample", "read_samples"]


class Sample(NamedTuple):
    """A sample.

    Attributes:
        key: Its key.
        label: The number of its class; None without labels.
        parts: The content of each part by extension, with the label as ``cls``.
    """

    key: str
    label: int | None
    parts: Mapping[str, bytes]


def read_samples(store: Store, version: VersionDocument, split: str) -> Iterator[Sample]:
    """Read the samples of a split in the order of the version, without those that it omits.

    The index of one segment at a time is on the local disk, and one shard is open at a time.

    Args:
        store: The dataset's root.
        version: The version.
        split: One of its splits.

    Raises:
        DamageError: A document, an index or a shard is damaged or missing. While iterating:
            ``damage.record``: a part differs from the index.
        StoreError: ``store.full``: no space is left for an index.
        ConfigError: While iterating, ``config.invalid_value``: a shard format of a newer Larder.
    """
    omitted = read_omitted(store, version)
    segments = [_segment(store, use.id) for use in version.segments]
    return _all(store, [segment for segment in segments if split in segment.splits], omitted, split)


def _segment(store: Store, segment: str) -> SegmentDocument:
    document = read_segment(store, segment)
    if document is None:
        where = object_url(store.url, layout.segment_key(segment))
        raise DamageError("damage.size", "the file is missing", where=where, hint=MAKE_AGAIN)
    return document


def _all(
    store: Store,
    segments: list[SegmentDocument],
    omitted: Mapping[tuple[str, str], Omitted],
    split: str,
) -> Iterator[Sample]:
    for segment in segments:
        gone = omitted.get((segment.id, split), Omitted.none())
        rows = segment.splits[split].samples
        if gone.count < rows:
            with _local(store, segment.file("samples")) as path:
                yield from _read(store, segment, split, _live(path, segment, split, gone))


def _live(
    path: Path, segment: SegmentDocument, split: str, omitted: Omitted
) -> Iterator[IndexedSample]:
    facts = segment.splits[split]
    row = 0
    for batch in read_manifest(path, SAMPLES, first_row=facts.first_row, rows=facts.samples):
        gone = omitted.mask(row, batch.num_rows).tolist()
        row += batch.num_rows
        yield from (
            sample for sample, out in zip(read_index([batch]), gone, strict=True) if not out
        )


def _read(
    store: Store, segment: SegmentDocument, split: str, samples: Iterator[IndexedSample]
) -> Iterator[Sample]:
    format_ = shard_format(*segment.shape.use)
    for name, group in groupby(samples, key=lambda sample: sample.shard):
        with format_.open(store, layout.shard_key(segment.id, split, name)) as shard:
            for sample in group:
                yield Sample(sample.key, sample.label, shard.read(sample))


@contextmanager
def _local(store: Store, file: FileFacts) -> Iterator[Path]:
    """A verified manifest as a local file."""
    with workshop(Path(tempfile.gettempdir())) as folder:
        path = folder / "samples.parquet"
        hasher = hashlib.sha256()
        with (
            own_file_errors(),
            disk_errors(path),
            store.open(file.path) as reader,
            path.open("wb") as copy,
        ):
            for buffer in reader:
                hasher.update(buffer)
                copy.write(buffer)
        if hasher.hexdigest() != file.sha256:
            where = object_url(store.url, file.path)
            message = "the bytes do not match the digest"
            raise DamageError("damage.digest", message, where=where, hint=MAKE_AGAIN)
        yield path
