"""One sample of a version: where it is, what it was packed from, and since when it is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from larder.bounds import map_ahead
from larder.catalog.history import READERS, check_dataset, dates_of, readers
from larder.catalog.place import Place
from larder.disk import disk_errors, write_file
from larder.errors import ConfigError
from larder.growth.previous import read_previous
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


def trace(place: Place, name: str, key: str, to: str | None = None) -> dict[str, Any]:
    """A sample of a version; a JSON document. Its parts are written to a folder, if one is given.

    Refused: ``version.missing``, ``version.ambiguous``; ``version.sample``.
    """
    root = check_dataset(place)
    version = published_version(root, place.dataset, name)
    packed = _packed(root, version, key)
    if packed is None:
        message, hint = f"there is no sample {key!r}", "give its key, which has no extension"
        where = object_url(root.url, layout.version_prefix(version.id))
        raise ConfigError("version.sample", message, where=where, hint=hint)
    since, published_us = _since(root, version, packed)
    segment = existing_segment(root, version.segments[packed["segment"]].id)
    index = SegmentIndex(root, segment.file("rows"), Path(), segment.samples)
    (sample,) = index.samples(np.array([packed["row"]]))
    shard = layout.shard_key(segment.id, packed["split"], sample.shard)
    sources = {part["ext"]: part for part in packed["parts"]}
    return {
        "dataset": version.dataset,
        "version": version.id,
        "key": key,
        "split": packed["split"],
        "label": packed["label"],
        "class": _class(version, packed),
        "shard": object_url(root.url, shard),
        "offset": sample.offset,
        "bytes": sample.length,
        "parts": [
            {
                "ext": part.ext,
                "offset": part.offset,
                "bytes": part.length,
                "crc32c": f"{part.crc32c:08x}",
                "source": sources.get(part.ext, {}).get("source"),
                "etag": sources.get(part.ext, {}).get("etag"),
            }
            for part in sample.parts
        ],
        "since": {"version": since, "published": format_time(published_us)},
        "written": _write(root, segment, shard, sample, Path(to)) if to else [],
    }


def _packed(root: Store, version: VersionDocument, key: str) -> dict[str, Any] | None:
    """The row of `larder.growth.previous.PACKED` of a sample of a version, if it has it."""
    for batch in read_previous(root, version).samples().batches:
        place = pc.index(batch.column("key"), key).as_py()
        if place >= 0:
            return dict(batch.slice(place, 1).to_pylist()[0])
    return None


def _class(version: VersionDocument, packed: Mapping[str, Any]) -> str | None:
    return dict(enumerate(version.classes)).get(packed["label"])


def _content(version: VersionDocument, packed: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is equal of samples that are the same."""
    parts = [(part["ext"], part["length"], part["crc32c"]) for part in packed["parts"]]
    return packed["split"], _class(version, packed), parts


def _since(root: Store, version: VersionDocument, packed: Mapping[str, Any]) -> tuple[str, int]:
    """The version since which the sample is the same, without a gap, and when it was published."""
    dates = dates_of(root)
    earlier = [id_ for id_ in dates if dates[id_] < dates.get(version.id, 0)]
    earlier.sort(key=lambda id_: dates[id_], reverse=True)
    since = version
    with readers() as pool:
        for before in map_ahead(pool, partial(read_version, root), earlier, window=READERS):
            had = _packed_before(root, before, since, packed) if before else None
            if before is None or had is None:
                break
            since, packed = before, had
    return since.id, dates[since.id]


def _packed_before(
    root: Store, before: VersionDocument, after: VersionDocument, packed: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The row of the same sample in an earlier version; it is looked for if it was elsewhere."""
    id_, split = after.segments[packed["segment"]].id, packed["split"]
    ids = [use.id for use in before.segments]
    if id_ in ids and after.classes[: len(before.classes)] == before.classes:
        row = packed["row"] - existing_segment(root, id_).splits[split].first_row
        gone = read_omitted(root, before).get((id_, split), Omitted.none())
        if not gone.mask(row, 1)[0]:
            return {**packed, "segment": ids.index(id_)}
    had = _packed(root, before, packed["key"])
    return had if had and _content(before, had) == _content(after, packed) else None


def _write(
    root: Store, segment: SegmentDocument, shard: str, sample: IndexedSample, folder: Path
) -> list[str]:
    """Write the parts of a sample, which are compared with their checksums; their paths."""
    with shard_format(*segment.shape.use).open(root, shard) as reader:
        parts = reader.read(sample)
    stem, paths = sample.key.rpartition("/")[2], []
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


def _part_lines(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        yield f"{part['ext']} {format_bytes(part['bytes'])}, crc32c {part['crc32c']}"
        if part["source"]:
            yield f"from {part['source']}, etag {part['etag']}"
