"""One sample of a version: where it is, what it was packed from, and since when it is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from larder.bounds import map_ahead
from larder.catalog.history import READERS, check_dataset, published
from larder.catalog.place import Place
from larder.disk import disk_errors, write_file
from larder.errors import ConfigError
from larder.jobs.manifests import read_ref
from larder.manifest.schemas import SOURCES
from larder.names import FILE
from larder.pipeline.emit import published_version
from larder.samples.indexed import IndexedSample
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.units import format_bytes, format_time, row_lines
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.index import SegmentIndex
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import existing_segment, read_version


@dataclass(frozen=True, slots=True)
class _Packed:
    """A sample in a segment: its row, from the first of its split, and its parts, as in SOURCES."""

    segment: SegmentDocument
    split: str
    row: int
    sample: IndexedSample
    parts: list[dict[str, Any]]

    def content(self, version: VersionDocument) -> tuple[Any, ...]:
        """What is compared: two of these are the same sample if it is equal."""
        parts = [(part.ext, part.length, part.crc32c) for part in self.sample.parts]
        return self.split, _label(version, self.sample), [p for p in parts if p[0] != "cls"]


class _Samples:
    """Looks a key up in versions; what is in a segment is looked up once."""

    def __init__(self, root: Store, key: str) -> None:
        self._root = root
        self._key = key
        self._packed: dict[str, _Packed | None] = {}

    def of(self, version: VersionDocument) -> _Packed | None:
        """The sample in a version, if it has it."""
        omitted = read_omitted(self._root, version)
        for use in version.segments:
            if use.id not in self._packed:
                self._packed[use.id] = self._in_segment(use.id)
            packed = self._packed[use.id]
            if packed:
                gone = omitted.get((use.id, packed.split), Omitted.none())
                if not gone.mask(packed.row, 1)[0]:
                    return packed
        return None

    def _in_segment(self, segment: str) -> _Packed | None:
        document = existing_segment(self._root, segment)
        first_row, sources = 0, document.file("sources")
        for batch in read_ref(self._root, sources, SOURCES, columns=["key"]):
            place = pc.index(batch.column("key"), self._key).as_py()
            if place >= 0:
                return self._at(document, first_row + place)
            first_row += batch.num_rows
        return None

    def _at(self, document: SegmentDocument, row: int) -> _Packed | None:
        (batch,) = read_ref(self._root, document.file("sources"), SOURCES, first_row=row, rows=1)
        index = SegmentIndex(self._root, document.file("rows"), Path(), document.samples)
        (sample,) = index.samples(np.array([row]))
        for split, facts in document.splits.items():
            if 0 <= row - facts.first_row < facts.samples:
                parts = batch.column("parts")[0].as_py()
                return _Packed(document, split, row - facts.first_row, sample, parts)
        return None


def trace(place: Place, name: str, key: str, to: str | None = None) -> dict[str, Any]:
    """A sample of a version; a JSON document. Its parts are written to a folder, if one is given.

    Refused: ``version.missing``, ``version.ambiguous``; ``version.sample``.
    """
    root = check_dataset(place)
    version = published_version(root, place.dataset, name)
    samples = _Samples(root, key)
    packed = samples.of(version)
    if packed is None:
        message, hint = f"there is no sample {key!r}", "give its key, which has no extension"
        where = object_url(root.url, layout.version_prefix(version.id))
        raise ConfigError("version.sample", message, where=where, hint=hint)
    since, published_us = _since(root, samples, version, packed)
    sources = {part["ext"]: part for part in packed.parts}
    shard = layout.shard_key(packed.segment.id, packed.split, packed.sample.shard)
    return {
        "dataset": version.dataset,
        "version": version.id,
        "key": key,
        "split": packed.split,
        "label": packed.sample.label,
        "class": _label(version, packed.sample),
        "shard": object_url(root.url, shard),
        "offset": packed.sample.offset,
        "bytes": packed.sample.length,
        "parts": [
            {
                "ext": part.ext,
                "offset": part.offset,
                "bytes": part.length,
                "crc32c": f"{part.crc32c:08x}",
                "source": sources.get(part.ext, {}).get("source"),
                "etag": sources.get(part.ext, {}).get("etag"),
            }
            for part in packed.sample.parts
        ],
        "since": {"version": since, "published": format_time(published_us)},
        "written": _write(root, packed, shard, Path(to)) if to else [],
    }


def _label(version: VersionDocument, sample: IndexedSample) -> str | None:
    label = sample.label
    return version.classes[label] if label is not None and label < len(version.classes) else None


def _since(
    root: Store, samples: _Samples, version: VersionDocument, packed: _Packed
) -> tuple[str, int]:
    """The version since which the sample is the same, without a gap, and when it was published."""
    dates = {infos[0].key.split("/")[1]: infos[0].modified_us for infos in published(root)}
    content, since = packed.content(version), version.id
    earlier = [id_ for id_ in dates if dates[id_] < dates.get(version.id, 0)]
    earlier.sort(key=lambda id_: dates[id_], reverse=True)
    with ThreadPoolExecutor(READERS, thread_name_prefix="version") as pool:
        for before in map_ahead(pool, partial(read_version, root), earlier, window=READERS):
            had = samples.of(before) if before else None
            if before is None or had is None or had.content(before) != content:
                break
            since = before.id
    return since, dates[since]


def _write(root: Store, packed: _Packed, shard: str, folder: Path) -> list[str]:
    """Write the parts of a sample, which are compared with their checksums; their paths."""
    with shard_format(*packed.segment.shape.use).open(root, shard) as reader:
        parts = reader.read(packed.sample)
    stem, paths = packed.sample.key.rpartition("/")[2], []
    for number, (ext, data) in enumerate(parts.items()):
        name = f"{stem}.{ext}"
        paths.append(folder / (name if FILE.allows(name) else f"part-{number}"))
        with disk_errors(paths[-1]):
            write_file(paths[-1], data)
    return [str(path) for path in paths]


def trace_lines(document: Mapping[str, Any]) -> list[str]:
    """The document for people."""
    label = f"{document['class']} ({document['label']})" if document["class"] else None
    rows = {
        "split": [document["split"]],
        "class": [label] if label else [],
        "shard": [document["shard"], f"byte {document['offset']:,}"],
        "parts": list(_part_lines(document["parts"])),
        "since": [f"{document['since']['version']}, {document['since']['published']}"],
        "written": document["written"],
    }
    lines = [f"{document['key']} in {document['dataset']} version {document['version']}"]
    return lines + [line for name, texts in rows.items() for line in row_lines(name, texts)]


def _part_lines(parts: list[dict[str, Any]]) -> Iterator[str]:
    for part in parts:
        yield f"{part['ext']} {format_bytes(part['bytes'])}, crc32c {part['crc32c']}"
        if part["source"]:
            yield f"from {part['source']}, etag {part['etag']}"
