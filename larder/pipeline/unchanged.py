"""Whether a source is unchanged although its etags have changed.

On a file system, an etag changes with a file's modification time. Objects whose etag changed but
not their size are read, and their CRC32C is compared with the recorded one, before they count as
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa

from larder.errors import NotFoundError, ObjectError
from larder.limits import map_ahead
from larder.manifest.digest import RowDigest
from larder.manifest.files import read_manifest
from larder.manifest.query import JOIN_BYTES, Rows, query
from larder.manifest.schemas import OBJECTS, SAMPLES
from larder.pipeline.copied import read_receipts
from larder.pipeline.job import ManifestRef
from larder.pipeline.manifests import fetched
from larder.progress import Progress
from larder.samples.grouping import bad_key_reason
from larder.store.base import Store
from larder.transfer.copy import format_crc32c
from larder.transfer.inventory import IDENTITY, Inventory
from larder.versions.documents import VersionDocument

__all__ = ["unchanged_version"]

READERS = 8


def unchanged_version(
    source: Store,
    root: Store,
    inventory: Inventory,
    to_inputs: Callable[[str], str],
    *,
    latest: VersionDocument,
    label_files: Collection[str],
    progress: Progress,
    work_dir: Path,
) -> VersionDocument | None:
    """The latest version, if the source still has the contents that it was made from.

    Args:
        source: The source; it is not read if its etags are MD5 of the contents, which prove that
            they changed.
        root: The dataset's root.
        inventory: The current objects in the source.
        to_inputs: Returns the inputs digest for an inventory digest, all else being equal.
        latest: The version that the tag names.
        label_files: Keys of label files, whose contents are themselves part of the inputs.
        progress: Reports progress of stage ``compare``, if there is anything to read.
        work_dir: Directory for temporary files.
    """
    if source.features.etag_is_md5:
        return None
    with (
        suppress(NotFoundError),  # if something is missing, it cannot be decided
        fetched(root, _ref(latest, "objects")) as before,
        fetched(root, _ref(latest, "samples")) as samples,
    ):
        if not _same_keys_and_sizes(before, inventory.file.path):
            return None
        if to_inputs(_inventory_digest(before)) != latest.inputs:
            return None
        inputs = {
            "before": Rows(OBJECTS, read_manifest(before, OBJECTS)),
            "now": Rows(OBJECTS, read_manifest(inventory.file.path, OBJECTS)),
            "parts": Rows(_PARTS, _parts(samples)),
            "receipts": Rows(OBJECTS, read_receipts(root)),
        }
        found = query(_TOUCHED, inputs, _TOUCHED_ROWS, work_dir=work_dir, memory_bytes=JOIN_BYTES)
        with closing(found) as batches:
            touched = _touched(batches, label_files)
            return latest if _same_contents(source, touched, progress) else None
    return None


def _ref(version: VersionDocument, role: str) -> ManifestRef:
    file = version.file(role)
    return ManifestRef(file.path, file.sha256, file.bytes, rows=-1)


def _rows(path: Path, *columns: str) -> Iterator[tuple[Any, ...]]:
    for batch in read_manifest(path, OBJECTS, columns=columns):
        yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


def _same_keys_and_sizes(before: Path, now: Path) -> bool:
    names = ("key", "size_bytes")
    try:
        pairs = zip(_rows(before, *names), _rows(now, *names), strict=True)
        return all(old == new for old, new in pairs)
    except ValueError:  # one is longer than the other
        return False


def _inventory_digest(path: Path) -> str:
    digest = RowDigest()
    for batch in read_manifest(path, OBJECTS, columns=IDENTITY):
        digest.update_batch(batch)
    return digest.hexdigest()


_PARTS = pa.schema(list(SAMPLES.field("parts").type.value_type))

_TOUCHED = """
    WITH copies AS (
        SELECT key, etag, max(checksum) AS checksum FROM receipts GROUP BY key, etag
    )
    SELECT
        now.key,
        now.etag,
        coalesce('crc32c:' || printf('%08x', parts.crc32c), copies.checksum) AS checksum
    FROM now
    JOIN before ON before.key = now.key
    LEFT JOIN parts ON parts.source = now.key
    LEFT JOIN copies ON copies.key = now.key AND copies.etag = before.etag
    WHERE now.etag <> before.etag
    ORDER BY now.key
"""

_TOUCHED_ROWS = pa.schema([OBJECTS.field(name) for name in ("key", "etag", "checksum")])
_Touched = tuple[str, str, str | None]
"""Key, etag as it is now, and recorded checksum of an object that may have changed: that of the
part that it became or, if its sample was left out, of its copy."""


def _parts(samples: Path) -> Iterator[pa.RecordBatch]:
    for batch in read_manifest(samples, SAMPLES, columns=["parts"]):
        yield pa.RecordBatch.from_struct_array(batch.column("parts").flatten())


def _touched(batches: Iterable[pa.RecordBatch], label_files: Collection[str]) -> Iterator[_Touched]:
    """The objects whose etag changed, but for those whose contents no sample has."""
    for batch in batches:
        for key, etag, checksum in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            if key not in label_files and bad_key_reason(key) is None:
                yield key, etag, checksum


def _same_contents(source: Store, touched: Iterator[_Touched], progress: Progress) -> bool:
    def same(row: _Touched) -> bool:
        key, etag, checksum = row
        try:
            return checksum is not None and _crc32c(source, key, etag) == checksum
        except ObjectError:
            return False
        finally:
            progress.advance("compare", objects=1)

    first = next(touched, None)
    if first is None:
        return True
    progress.start("compare")
    with ThreadPoolExecutor(READERS, thread_name_prefix="check") as pool:
        alike = all(map_ahead(pool, same, chain([first], touched), window=4 * READERS))
    progress.finish("compare")
    return alike


def _crc32c(source: Store, key: str, etag: str) -> str:
    crc = 0
    with source.open(key, if_match=etag) as reader:
        for buffer in reader:
            crc = google_crc32c.extend(crc, bytes(buffer))
    return format_crc32c(crc)
