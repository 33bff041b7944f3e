"""Samples of a version, one or those of a batch: where they are, and what they were packed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.budgets import map_ahead
from larder.catalog.history import check_dataset, dates_of
from larder.catalog.holdings import READERS, readers
from larder.catalog.place import Place
from larder.disk import disk_errors, write_file
from larder.errors import ConfigError, printable
from larder.jobs.manifests import read_ref
from larder.manifest.schemas import SOURCES
from larder.names import FILE
from larder.readers.access import DatasetAccess
from larder.readers.data import Data
from larder.readers.options import Kind, Shuffle
from larder.readers.schedule import whole
from larder.samples.indexed import IndexedSample
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.units import format_bytes, format_time, row_lines
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.find import published_version
from larder.versions.index import SegmentIndex
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import existing_segment, read_version


class _Located(NamedTuple):
    """Where a sample is; ``packed`` is its row of `_rows_in`."""

    packed: Mapping[str, Any]
    segment: SegmentDocument
    shard: str
    sample: IndexedSample


def trace(
    place: Place, name: str, key: str | None = None, to: str | None = None, **batch: Any
) -> dict[str, Any]:
    """A sample of a version, by its key; a JSON document. Its parts are written to a folder, if one
    is given. Without a key, the samples of a ``batch``; see `_trace_batch`.

    Refused: ``version.missing``, ``version.ambiguous``; ``version.sample``, ``version.split``.
    """
    given = {option: value for option, value in batch.items() if value is not None}
    is_batch = {"split", "batch", "batch_size"} <= given.keys() and to is None
    if is_batch == (key is not None) or bool(given) != is_batch:
        message = "this is neither a sample nor a batch"
        hint = "give KEY, perhaps with --to; or --split, --batch and --batch-size"
        raise ConfigError("config.invalid_flag", message, hint=hint)
    root = check_dataset(place)
    version = published_version(root, place.dataset, name)
    if key is None:
        return _trace_batch(place, root, version, **given)
    located = _located(root, version, [key]).get(key)
    if located is None:
        message, hint = f"there is no sample {key!r}", "give its key, which has no extension"
        where = object_url(root.url, layout.version_prefix(version.id))
        raise ConfigError("version.sample", message, where=where, hint=hint)
    since, published_us = _since(root, version, located.packed)
    return {
        "dataset": version.dataset,
        "version": version.id,
        **_described(root, version, located),
        "since": {"version": since, "published": format_time(published_us)},
        "written": _write(root, located, Path(to)) if to else [],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlaceAccess(DatasetAccess):
    place: Place

    def store(self) -> Store:
        return self.place.open()


def _trace_batch(
    place: Place,
    root: Store,
    version: VersionDocument,
    *,
    split: str,
    batch: int,
    batch_size: int,
    epoch: int = 0,
    seed: int = 0,
    rank: int | None = None,
    world: int = 1,
    shuffle: Kind | None = None,
    window: int | None = None,
    lanes: int | None = None,
) -> dict[str, Any]:
    """The samples of a batch of a loader, with the arguments of `larder.readers.data.Data.loader`.

    Without a ``rank``, those of all ranks; without ``shuffle``, in the order that ``shuffle=True``
    has from this storage. The last batch is that of ``even="pad"``.
    """
    access = _PlaceAccess(root=root.url, cache_dir=Path(), place=place)
    cached = version.cache is not None and split in version.cache.splits
    given = Shuffle(shuffle or ("full" if cached else None), window, lanes)
    data = Data(replace(version, cache=None), access)  # which need not be fetched
    loader = data.loader(
        split,
        batch_size=batch_size,
        shuffle=shuffle != "sequential" and given,
        seed=seed,
        rank=0,
        world=whole("--world", world, 1),
    )
    _, schedule, samples, *_ = loader.parts
    division = schedule.division(world)
    batch = whole("--batch", batch, 0, division.batches - 1)
    order = schedule.order(whole("--epoch", epoch, 0), samples)
    ranks = range(world) if rank is None else [whole("--rank", rank, 0, world - 1)]
    shares = {each: division.shares(order, batch, batch + 1, each)[0] for each in ranks}
    numbers = np.unique(np.concatenate([*shares.values()]))
    keys = dict(zip(numbers.tolist(), samples.keys_of(numbers), strict=True))
    located = _located(root, version, keys.values())
    return {
        "dataset": version.dataset,
        "version": version.id,
        "split": split,
        "epoch": epoch,
        "batch": batch,
        "batch_size": batch_size,
        "world": world,
        "seed": seed,
        "order": asdict(schedule.shuffle),
        "samples": [
            {"rank": each, **_described(root, version, located[keys[number]])}
            for each, share in shares.items()
            for number in share.tolist()
        ],
    }


def _described(root: Store, version: VersionDocument, located: _Located) -> dict[str, Any]:
    packed, _, shard, sample = located
    sources = {part["ext"]: part for part in packed["parts"]}
    return {
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
    }


def _located(root: Store, version: VersionDocument, keys: Iterable[str]) -> dict[str, _Located]:
    """By key, where samples are, of those that a version has."""
    rows = _packed(root, version, partial(_rows_in, root, pa.array(sorted(set(keys)))))
    located = {}
    for id_, inside in groupby(rows, itemgetter("segment")):
        packed, segment = list(inside), existing_segment(root, id_)
        index = SegmentIndex(root, segment.file("rows"), Path(), segment.samples)
        samples = index.samples(np.array([row["row"] for row in packed]))
        for row, sample in zip(packed, samples, strict=True):
            shard = layout.shard_key(segment.id, row["split"], sample.shard)
            located[sample.key] = _Located(row, segment, shard, sample)
    return located


def _packed(
    root: Store,
    version: VersionDocument,
    rows_in: Callable[[str], Iterable[dict[str, Any]]],
    first: str = "",
) -> Iterator[dict[str, Any]]:
    """The rows of samples that a version has, as `_rows_in`; one segment is looked at first."""
    omitted = read_omitted(root, version)
    for use in sorted(version.segments, key=lambda use: use.id != first):
        for row in rows_in(use.id):
            gone = omitted.get((use.id, row["split"]), Omitted.none())
            if not gone.mask(row["row_of_split"], 1)[0]:
                yield row


def _rows_in(root: Store, keys: pa.Array, segment: str) -> list[dict[str, Any]]:
    """The rows of `larder.manifest.schemas.SOURCES` of samples that a segment has, in order; with
    the segment, the row in its index, the split, and the row in that.
    """
    document, first_row, found = existing_segment(root, segment), 0, []
    for batch in read_ref(root, document.file("sources"), SOURCES):
        places = pc.indices_nonzero(pc.is_in(batch.column("key"), keys))
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


def _content(version: VersionDocument, packed: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is equal of samples that are the same."""
    parts = [(part["ext"], part["length"], part["crc32c"]) for part in packed["parts"]]
    return packed["split"], _class(version, packed), parts


def _since(root: Store, version: VersionDocument, packed: Mapping[str, Any]) -> tuple[str, int]:
    """The version since which the sample is the same, without a gap, and when it was published.

    Each segment is read once, however many versions have it.
    """
    dates = dates_of(root)
    earlier = [id_ for id_ in dates if dates[id_] < dates.get(version.id, 0)]
    earlier.sort(key=lambda id_: dates[id_], reverse=True)
    since, segment, content = version.id, packed["segment"], _content(version, packed)
    rows_in = cache(partial(_rows_in, root, pa.array([packed["key"]])))
    with readers() as pool:
        for before in map_ahead(pool, partial(read_version, root), earlier, window=READERS):
            row = next(_packed(root, before, rows_in, segment), None) if before else None
            if before is None or row is None or _content(before, row) != content:
                break
            since, segment = before.id, row["segment"]
    return since, dates[since]


def _write(root: Store, located: _Located, folder: Path) -> list[str]:
    """Write the parts of a sample, which are compared with their checksums; their paths."""
    _, segment, shard, sample = located
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
    if "samples" in document:
        return list(_batch_lines(document))
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


def _batch_lines(document: Mapping[str, Any]) -> Iterator[str]:
    names = ("batch", "epoch", "seed", "batch_size", "world")
    facts = ", ".join(f"{name.replace('_', ' ')} {document[name]}" for name in names)
    order = ", ".join(f"{name} {value}" for name, value in document["order"].items() if value)
    yield f"{document['dataset']} version {document['version']}, {document['split']}: {facts}"
    yield f"  order    {order}"
    for sample in document["samples"]:
        label = f", {sample['class']} ({sample['label']})" if sample["class"] else ""
        yield printable(f"  {sample['key']}{label}, of rank {sample['rank']}")
        yield f"    {sample['shard']}, byte {sample['offset']:,}"
        yield from (f"    {printable(line)}" for line in _part_lines(sample["parts"]))


def _part_lines(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        yield f"{part['ext']} {format_bytes(part['bytes'])}, crc32c {part['crc32c']}"
        if part["source"]:
            yield f"from {part['source']}, etag {part['etag']}"
