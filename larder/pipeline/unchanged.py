"""Whether a source is what it was, although its etags are not.

On a file system an etag changes with a file's time. Objects whose etag changed but not their size
are read and their CRC32C compared with the recorded one, before they count as changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import google_crc32c

from larder.errors import NotFoundError, ObjectError
from larder.limits import map_ahead
from larder.manifest.digest import RowDigest
from larder.manifest.files import read_manifest
from larder.manifest.schemas import OBJECTS
from larder.pipeline.job import ManifestRef
from larder.pipeline.manifests import fetched
from larder.progress import Progress
from larder.samples.grouping import may_be_part
from larder.store.base import Store
from larder.transfer.copy import format_crc32c
from larder.transfer.inventory import IDENTITY, Inventory
from larder.versions.documents import VersionDocument
from larder.versions.publish import TAG, read_tag, read_version

__all__ = ["unchanged_version"]

READERS = 8


def unchanged_version(
    source: Store,
    root: Store,
    inventory: Inventory,
    to_inputs: Callable[[str], str],
    *,
    label_files: Collection[str],
    progress: Progress,
) -> VersionDocument | None:
    """The latest version if the source still has the contents that it was made from.

    Args:
        source: The source; one whose etags are md5 of the contents has said already that they
            changed, and is not read.
        root: The dataset's root.
        inventory: What stands at the source now.
        to_inputs: The inputs digest for an inventory digest, everything else as it is now.
        label_files: Keys of label files, whose contents are part of the inputs as they are.
        progress: Reports progress of stage ``compare``, if there is anything to read.
    """
    tag = None if source.features.etag_is_md5 else read_tag(root, TAG)
    version = read_version(root, tag["version"]) if tag else None
    if version is None:
        return None
    recorded = version.file("objects")
    ref = ManifestRef(recorded.path, recorded.sha256, recorded.bytes, rows=-1)
    with suppress(NotFoundError), fetched(root, ref) as before:  # if lost, it cannot be told
        if not _same_keys_and_sizes(before, inventory.file.path):
            return None
        if to_inputs(_inventory_digest(before)) != version.inputs:
            return None
        touched = _touched(before, inventory.file.path, label_files)
        return version if _same_contents(source, touched, progress) else None
    return None


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


_Touched = tuple[str, str, str | None]
"""Key, etag as it is now, and recorded checksum of an object that may have changed."""


def _touched(before: Path, now: Path, label_files: Collection[str]) -> Iterator[_Touched]:
    """The objects whose etag changed, but for those whose contents no sample has."""
    olds = _rows(before, "key", "size_bytes", "etag", "checksum")
    news = _rows(now, "etag")
    for (key, size_bytes, etag, checksum), (new,) in zip(olds, news, strict=True):
        if etag != new and key not in label_files and may_be_part(key, size_bytes):
            yield key, new, checksum


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
