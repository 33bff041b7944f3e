"""All shards of a version in a directory of this machine, downloaded once for all its processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from larder.disk import TEMPORARY_PREFIX, check_names, disk_errors, removed_if_abandoned, write_file
from larder.errors import ConfigError
from larder.manifest.sealed import StoredFile
from larder.store.base import Store
from larder.store.download import download, locked, path_below
from larder.versions.documents import VersionDocument

THREADS = 8

CLASSES = "classes.json"
_MARK = "larder.json"
_LOCK = ".larder.lock"


def download_version(
    store: Store,
    version: VersionDocument,
    shards: Mapping[str, Iterable[StoredFile]],
    directory: Path,
) -> None:
    """Download shards, given by split, and the numbers of the classes.

    The file larder.json says which version the directory has.
    """
    check_names(directory, shards)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / _LOCK):
        _mark(version, directory)
        for draft in directory.glob(f"*/{TEMPORARY_PREFIX}*"):
            with suppress(OSError):  # without locks, nobody knows whether somebody writes it
                removed_if_abandoned(draft)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="larder-download") as threads:
            pending = [
                threads.submit(_download, store, directory, f"{split}/{file.name}", file)
                for split, files in shards.items()
                for file in files
            ]
            try:
                for each in pending:
                    each.result()
            finally:
                threads.shutdown(cancel_futures=True)
        for facts in version.files_of("classes"):
            download(store, facts.path, directory / CLASSES, facts.bytes, facts.sha256)


def _download(store: Store, directory: Path, path: str, file: StoredFile) -> None:
    download(store, file.path, path_below(directory, path), file.bytes, file.sha256, threads=1)


def _mark(version: VersionDocument, directory: Path) -> None:
    """Write down which version is in a directory, or refuse one that has another."""
    mark = {"dataset": version.dataset, "version": version.id, "digest": version.digest}
    data = json.dumps(mark, indent=1).encode() + b"\n"
    path = directory / _MARK
    with disk_errors(path, reading=True):
        present = path.read_bytes() if path.exists() else None
    if present is None:
        write_file(path, data)
    elif present != data:
        message = "the directory has another version, or another dataset"
        hint = "name another directory, or delete this one"
        raise ConfigError("config.path", message, where=str(path), hint=hint)
