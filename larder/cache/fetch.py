"""Cache files in a remote store, downloaded to a directory of this machine and verified."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from larder.cache.record import CacheFileFacts
from larder.disk import disk_errors, draft, wait_for_lock
from larder.errors import StoreError
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.own_files import read_digest
from larder.units import format_bytes

VARIABLE = "LARDER_CACHE_DIR"
"""Environment variable that names the directory of downloaded cache files."""


def cache_directory(given: str | Path | None = None) -> Path:
    """The download directory: ``given``, ``$LARDER_CACHE_DIR`` or ``~/.cache/larder``."""
    return Path(given or os.environ.get(VARIABLE) or "~/.cache/larder").expanduser()


def fetch_file(store: Store, key: str, facts: CacheFileFacts, directory: Path) -> Path:
    """The path of a cache file on a local disk; downloaded, unless the store is a directory.

    A downloaded file is named by its sha256 and appears after it was verified, so it is never
    downloaded again, whichever version uses it. Processes on one machine that need the same file
    wait for the one that downloads it.
    """
    if store.features.local_path:
        return local_path(store, key)
    path = directory / f"{facts.sha256}.mdb"
    with disk_errors(path):
        directory.mkdir(parents=True, exist_ok=True)
    if not _is_downloaded(path, facts):
        with _turn(path):
            if not _is_downloaded(path, facts):
                _download(store, key, facts, path)
    return path


def _is_downloaded(path: Path, facts: CacheFileFacts) -> bool:
    with disk_errors(path, reading=True):
        try:
            return path.stat().st_size == facts.bytes
        except FileNotFoundError:
            return False


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Hold a lock that the system releases when its holder dies.

    The lock file remains: if it were removed, two processes could lock two files of the same name.
    Without locks, several processes may download the same file, each of them completely.
    """
    lock = path.with_name(f".{path.name}.lock")
    with disk_errors(lock):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        wait_for_lock(handle)
        yield
    finally:
        os.close(handle)


def _download(store: Store, key: str, facts: CacheFileFacts, path: Path) -> None:
    with disk_errors(path):
        free_bytes = shutil.disk_usage(path.parent).free
    if free_bytes < facts.bytes:
        need, free = format_bytes(facts.bytes), format_bytes(free_bytes)
        message = f"the cache needs {need}, but only {free} are free"
        hint = f"set {VARIABLE} to a directory with more space"
        raise StoreError("store.full", message, where=str(path.parent), hint=hint)
    with draft(path) as file:
        facts.compare(*read_digest(store, key, file.write), object_url(store.url, key))
        file.publish()
