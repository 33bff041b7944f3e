"""The files that a version consists of, and its copy in a directory.

Readers read a copy like the original.

A copy has the files that readers need: listed shards, indexes, caches and documents. It lacks the
manifests that only later runs of the dataset need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from larder.disk import check_names, disk_errors, remove_abandoned_below, write_file
from larder.errors import DamageError, LarderError
from larder.manifest.sealed import MAKE_AGAIN, StoredFile
from larder.store import object_url, open_store
from larder.store.base import Store
from larder.store.download import download, is_downloaded, locked, path_below
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.index import SegmentIndex, Shard, listed_shards, read_shards
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import existing_segment, read_version

_ROLES = frozenset({"rows", "omitted", "list", "classes", "readers"})
_LOCK = ".larder.lock"
THREADS = 8
_FEW_SHARDS = 10_000


def read_listed(
    root: Store, files: Iterable[StoredFile], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[Shard]:
    """Yield the listed shards of segments, in order, given the segments' files; see
    `listed_shards`.
    """
    for file in files:
        if file.role == "rows":
            yield from listed_shards(read_shards(root, file), omitted)


def named_by_document(version: VersionDocument) -> dict[str, int | None]:
    """Return the length of each file that version.json names, by path; None for documents.

    Nothing is read.
    """
    caches = version.cache.splits.values() if version.cache else ()
    named: dict[str, int | None] = {layout.version_key(version.id): None}
    for use in version.segments:
        named[layout.segment_key(use.id)] = None
        if use.cache:
            named[layout.cache_key(use.id, use.cache)] = None
    named |= {file.path: file.bytes for file in version.files}
    return named | {file.path: file.bytes for file in chain.from_iterable(caches)}


def segment_files(
    root: Store, files: Iterable[StoredFile], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[StoredFile]:
    """Yield the files of the listed shards of segments, with their indexes for other readers."""
    for shard in read_listed(root, files, omitted):
        yield from shard.published


def version_files(store: Store, version: VersionDocument) -> Iterator[StoredFile]:
    """Yield the files of a version that readers read, without its documents."""
    yield from (file for file in version.files if file.role in _ROLES)
    omitted = read_omitted(store, version)
    for use in version.segments:
        document = existing_segment(store, use.id)
        index = SegmentIndex(store, document.file("rows"), Path(), document.samples)
        for split, facts in document.splits.items():
            for shard in listed_shards(index.shards(split, facts.samples), omitted):
                yield from shard.files
    for files in version.cache.splits.values() if version.cache else ():
        yield from (StoredFile(file.path, file.bytes, file.sha256, "cache") for file in files)


def check_shards(store: Store, version: VersionDocument, split: str) -> None:
    """Refuse a split with more shards than its indexes have.

    Only a split of more than `_FEW_SHARDS` shards is checked, as listing its shards takes memory.
    """
    facts = version.splits[split]
    if facts.shards > _FEW_SHARDS:
        files = (file for file in version_files(store, version) if file.role == "shard")
        shards = sum(1 for file in files if f"/shards/{split}/" in file.path)
        if shards < facts.shards:
            message = f"split {split} has {shards:,} of {facts.shards:,} shards"
            where = object_url(store.url, layout.version_key(version.id))
            raise DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN)


def copy_version(
    store: Store, version: VersionDocument, files: Iterable[StoredFile], root: Path
) -> None:
    """Copy the files of a version, and then its documents, below a directory.

    Files that exist are not copied again. A file appears complete, after a comparison with its
    digest. If several processes copy at once, one does and the others wait. The last write makes
    the copy a version.
    """
    files = list(files)
    if _is_complete(version, files, root):  # without the lock: the copy may be another user's
        return
    check_names(root, version.splits)
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    with locked(root / _LOCK):
        remove_abandoned_below(root, [root])
        with ThreadPoolExecutor(THREADS, thread_name_prefix="larder-copy") as threads:
            pending = [threads.submit(_copy, store, file, root) for file in files]
            try:
                for each in pending:
                    each.result()
            finally:
                threads.shutdown(cancel_futures=True)
        for use in version.segments:
            path = path_below(root, layout.segment_key(use.id))
            existing_segment(store, use.id, partial(write_file, path))
        path = path_below(root, layout.version_key(version.id))
        if read_version(store, version.id, partial(write_file, path)) is None:
            where = object_url(store.url, layout.version_key(version.id))
            raise DamageError("damage.size", "the file is missing", where=where)


def _is_complete(version: VersionDocument, files: Sequence[StoredFile], root: Path) -> bool:
    copies = open_store(str(root))
    try:
        if read_version(copies, version.id) != version:
            return False
        for use in version.segments:
            existing_segment(copies, use.id)
    except LarderError:
        return False
    return all(is_downloaded(root / file.path, file.bytes) for file in files)


def _copy(store: Store, file: StoredFile, root: Path) -> None:
    download(store, file.path, path_below(root, file.path), file.bytes, file.sha256, threads=1)
