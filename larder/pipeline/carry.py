"""What an earlier attempt at a batch finished, so that a task that is retried does not repeat it.

A run that continues an earlier one plans other batches; this is for the same batch of the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from larder.copy.object import Copy
from larder.errors import NotFoundError, ObjectError
from larder.limits import map_ahead
from larder.manifest.files import read_manifest
from larder.manifest.schemas import OBJECTS, SAMPLES
from larder.pipeline import copied
from larder.pipeline.copy_place import MIRROR, CopyPlace
from larder.pipeline.finished import is_noted
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.receipts import Shard, partial_receipts
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.versions import layout

_Pair = tuple[str, str, str]
"""Key of an object, its etag in the source, and that of its copy."""


def copied_before(
    root: Store,
    batch: str,
    objects: Callable[[], Iterable[ObjectInfo]],
    concurrency: int,
    progress: Progress,
    place: CopyPlace = MIRROR,
) -> list[Copy]:
    """The copies in receipts of this batch that still match them.

    ``progress`` may stop this; nothing is reported, because the earlier attempt did that.
    """
    known: dict[_Pair, Copy] = {}
    for ref in copied.partial_receipts(root, batch, place):
        for rows in read_ref(root, ref, OBJECTS):
            modified = rows.column("modified").cast(pa.int64())
            rows = rows.set_column(OBJECTS.get_field_index("modified"), "modified", modified)
            for copy in map(Copy, *(column.to_pylist() for column in rows.columns)):
                known[copy.key, copy.etag, copy.mirror_etag] = copy
    keys = {key for key, _, _ in known}
    if not keys:
        return []

    def find(info: ObjectInfo) -> Copy | None:
        try:
            there = root.head(place.objects + info.key)
        except ObjectError:
            return None
        copy = known.get((info.key, info.etag, there.etag))
        return copy if copy and there.size_bytes == info.size_bytes else None

    found: list[Copy] = []
    with ThreadPoolExecutor(concurrency, thread_name_prefix="check") as pool:
        asked = (info for info in objects() if info.key in keys)
        for row in map_ahead(pool, find, asked, window=4 * concurrency):
            progress.advance("mirror")
            found += [row] if row else []
    return found


def shards_before(
    root: Store, segment: str, batch: str
) -> Iterator[tuple[Shard, Iterator[pa.RecordBatch]]]:
    """The shards in receipts of this batch, with their rows.

    Shards whose objects do not match their receipt are left out.
    """
    found: set[tuple[str, str]] = set()
    for receipt in partial_receipts(root, segment, batch):
        first_row = 0
        with fetched(root, receipt.rows) as path:
            for shard in receipt.shards:
                name, own = (shard.split, shard.name), (first_row, shard.samples)
                first_row += shard.samples
                if name not in found and _stands(root, segment, shard):
                    found.add(name)
                    yield shard, read_manifest(path, SAMPLES, first_row=own[0], rows=own[1])


def _stands(root: Store, segment: str, shard: Shard) -> bool:
    def find(path: str) -> ObjectInfo | None:
        try:
            return root.head(layout.shards_prefix(segment) + path)
        except NotFoundError:
            return None

    return is_noted(shard, find)
