"""Finds a sample of a version: its place, and the objects that it was packed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from larder.catalog.history import check_dataset
from larder.catalog.stored_dataset import StoredDataset
from larder.disk import disk_errors, write_file
from larder.errors import ConfigError
from larder.jobs.manifests import read_ref
from larder.manifest.schemas import SOURCES
from larder.names import FILE
from larder.samples.indexed import IndexedSample
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.units import format_bytes, row_lines
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.index import SegmentIndex
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import existing_segment
from larder.versions.tags import published_version


def trace(place: StoredDataset, name: str, key: str, to: str | None = None) -> dict[str, Any]:
    """Describe a sample as a JSON document, and write its parts to a folder if one is given.

    Refused: ``version.missing``, ``version.ambiguous``, ``version.sample``.
    """
    root = check_dataset(place)
    version = published_version(root, place.dataset, name)
    packed = next(_packed(root, version, key), None)
    if packed is None:
        message, hint = f"there is no sample {key!r}", "give its key, which has no extension"
        where = object_url(root.url, layout.version_prefix(version.id))
        raise ConfigError("version.sample", message, where=where, hint=hint)
    segment = existing_segment(root, packed["segment"])
    index = SegmentIndex(root, segment.file("rows"), Path(), segment.samples)
    (sample,) = index.samples(np.array([packed["row"]]))
    shard = layout.shard_key(segment.id, packed["split"], sample.shard)
    sources = {part["ext"]: part for part in packed["parts"]}
    return {
        "dataset": version.dataset,
        "version": version.id,
        "key": sample.key,
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
        "written": _write(root, segment, shard, sample, Path(to)) if to else [],
    }


def _packed(root: Store, version: VersionDocument, key: str) -> Iterator[dict[str, Any]]:
    """Yield a sample's rows (`_rows_in`) that a version does not omit."""
    omitted = read_omitted(root, version)
    for use in version.segments:
        for row in _rows_in(root, key, use.id):
            gone = omitted.get((use.id, row["split"]), Omitted.none())
            if not gone.mask(row["row_of_split"], 1)[0]:
                yield row


def _rows_in(root: Store, key: str, segment: str) -> list[dict[str, Any]]:
    """Return a sample's rows of `larder.manifest.schemas.SOURCES` in a segment, in order.

    Each row also has the segment, the row in its index, the split, and the row in the split.
    """
    document, first_row, found = existing_segment(root, segment), 0, []
    for batch in read_ref(root, document.file("sources"), SOURCES):
        places = pc.indices_nonzero(pc.equal(batch.column("key"), key))
        for place, packed in zip(places.to_pylist(), batch.take(places).to_pylist(), strict=True):
            row, splits = first_row + place, document.splits.items()
            split, facts = next(s for s in splits if 0 <= row - s[1].first_row < s[1].samples)
            where = {"split": split, "row_of_split": row - facts.first_row}
            found.append({**packed, "segment": segment, "row": row, **where})
        first_row += batch.num_rows
    return found


def _class(version: VersionDocument, packed: Mapping[str, Any]) -> str | None:
    label, classes = packed["label"], version.classes
    return classes[label] if label is not None and 0 <= label < len(classes) else None


def _write(
    root: Store, segment: SegmentDocument, shard: str, sample: IndexedSample, folder: Path
) -> list[str]:
    """Write the parts of a sample, compared with their checksums; return their paths."""
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
    label = f"{document['class']} ({document['label']})" if document["class"] else None
    rows = {
        "split": [document["split"]],
        "class": [label] if label else [],
        "shard": [document["shard"], f"byte {document['offset']:,}"],
        "parts": list(_part_lines(document["parts"])),
        "written": document["written"],
    }
    lines = [f"{document['key']} in {document['dataset']} version {document['version']}"]
    return lines + [line for name, texts in rows.items() for line in row_lines(name, texts)]


def _part_lines(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        yield f"{part['ext']} {format_bytes(part['bytes'])}, crc32c {part['crc32c']}"
        if part["source"]:
            yield f"from {part['source']}, etag {part['etag']}"
