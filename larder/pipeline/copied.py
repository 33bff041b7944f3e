"""What is already copied: the listing of the mirror, and the receipts of its copies.

The receipts of many runs are merged; see `larder.pipeline.merging`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from larder.limits import map_ahead
from larder.manifest.schemas import OBJECTS
from larder.pipeline.copy_place import MIRROR, CopyPlace
from larder.pipeline.job import CopyBatch, ManifestRef, listed
from larder.pipeline.manifests import read_ref
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import unseal

READERS = 4
"""Number of receipts held in memory at the same time, each of at most 50,000 objects."""


@dataclass(frozen=True, slots=True)
class Receipts:
    """The receipts of all copies of a dataset. Manifests of schema OBJECTS.

    ``merged`` are manifests with the rows of many receipts, and ``covered`` the digests of those;
    ``of_order`` are the others, by the sample order whose objects were copied; ``redundant`` are
    partial receipts of batches that have finished since, by sample order.
    """

    merged: tuple[ManifestRef, ...]
    of_order: Mapping[str, list[ManifestRef]]
    covered: frozenset[str]
    redundant: Mapping[str, list[ManifestRef]] = field(default_factory=dict)


def mirrored(root: Store) -> Iterator[ObjectInfo]:
    """The objects of the mirror in order, with their keys in the source."""
    prefix = layout.mirror_prefix()
    for info in listed(root, prefix):
        yield replace(info, key=info.key.removeprefix(prefix))


def batch_name(sample_order: ManifestRef, batch: CopyBatch) -> str:
    return f"{sample_order.sha256[:16]}-{batch.first_row:012d}-{batch.rows}"


def read_receipts(root: Store) -> Iterator[pa.RecordBatch]:
    """The rows of all receipts of the dataset, of schema OBJECTS.

    A finished batch has a complete receipt; its partial ones are not read.
    """
    found = find_receipts(root)
    for ref in found.merged:  # may be long, so not as a whole
        yield from read_ref(root, ref, OBJECTS)

    def read(ref: ManifestRef) -> list[pa.RecordBatch]:
        return list(read_ref(root, ref, OBJECTS))

    refs = chain.from_iterable(found.of_order.values())
    with ThreadPoolExecutor(READERS, thread_name_prefix="receipt") as pool:
        yield from chain.from_iterable(map_ahead(pool, read, refs, window=READERS))


def find_receipts(root: Store, place: CopyPlace = MIRROR) -> Receipts:
    """Find the receipts of all copies, with one listing."""
    merged: list[ObjectInfo] = []
    receipts: list[tuple[str, ManifestRef]] = []
    redundant: dict[str, list[ManifestRef]] = defaultdict(list)
    finished: set[str] = set()
    for info in listed(root, place.receipts):
        batch = info.key.split("/")[-2]
        partial = info.key.startswith(place.partial())
        if info.key.startswith(place.merged):
            merged.append(info)
            continue
        if not partial:  # these are listed before the partial ones
            finished.add(batch)
        order = batch.partition("-")[0]
        if partial and batch in finished:
            redundant[order].append(_receipt(info))
        else:
            receipts.append((order, _receipt(info)))
    files, covered = _merged(root, place, merged)
    of_order: dict[str, list[ManifestRef]] = defaultdict(list)
    for order, ref in receipts:
        if ref.sha256 not in covered:
            of_order[order].append(ref)
    return Receipts(files, of_order, covered, redundant)


def _merged(
    root: Store, place: CopyPlace, there: list[ObjectInfo]
) -> tuple[tuple[ManifestRef, ...], frozenset[str]]:
    """The merged receipts, and the digests of what is in them; nothing if any of them is gone."""
    sizes = {info.key: info.size_bytes for info in there}
    key = place.merged_key
    if key not in sizes:
        return (), frozenset()
    plain = unseal(bytes(root.get(key)), object_url(root.url, key))
    files = tuple(ManifestRef(**file) for file in plain["files"])
    if any(sizes.get(file.key) != file.bytes for file in files):
        return (), frozenset()
    return files, frozenset(plain["receipts"])


def batch_receipts(root: Store, sample_order: ManifestRef) -> list[tuple[range, ManifestRef]]:
    """The receipts of the finished batches of a sample order, with their rows of the order."""
    found: list[tuple[range, ManifestRef]] = []
    for info in listed(root, f"{layout.copies_prefix()}{sample_order.sha256[:16]}-"):
        first_row, rows = map(int, info.key.split("/")[-2].split("-")[1:])
        found.append((range(first_row, first_row + rows), _receipt(info)))
    return found


def partial_receipts(root: Store, batch: str, place: CopyPlace = MIRROR) -> Iterator[ManifestRef]:
    """The receipts that a batch wrote before it was finished."""
    yield from map(_receipt, listed(root, place.partial(batch)))


def _receipt(info: ObjectInfo) -> ManifestRef:
    digest = info.key.rpartition("/")[2].removesuffix(".parquet")
    return ManifestRef(info.key, digest, info.size_bytes, rows=-1)
