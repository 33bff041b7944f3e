"""Parts of a remote store, downloaded to a directory of this machine and verified."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from larder.cache.layout import CacheFileFacts
from larder.cache.scratch import Draft, disk_errors, draft
from larder.errors import DamageError, StoreError
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.temporary import wait_for_lock
from larder.units import format_bytes

__all__ = ["VARIABLE", "cache_directory", "fetch_file"]

VARIABLE = "LARDER_CACHE_DIR"
"""Environment variable that names the directory of downloaded files."""


def cache_directory(given: str | Path | None = None) -> Path:
    """Where files are downloaded to: what is given, ``$LARDER_CACHE_DIR``, ``~/.cache/larder``."""
    return Path(given or os.environ.get(VARIABLE) or "~/.cache/larder").expanduser()


def fetch_file(store: Store, key: str, facts: CacheFileFacts, directory: Path) -> Path:
    """The path of a part on a local disk; downloaded, unless the store is a directory.

    A file is named by its sha256, and appears when its bytes were compared with it, so what is
    there is not downloaded again, by whatever version it is used. Processes of one machine that
    want the same part wait for the one that downloads it.

    Args:
        store: Holds the file.
        key: The part.
        facts: What was published of it.
        directory: Where downloads go: see `cache_directory`.

    Raises:
        DamageError: ``damage.size``, ``damage.digest``: the store's bytes are not those that were
            published.
        StoreError: ``store.full``: no space is left for it.
        ConfigError: ``config.path``: the directory cannot be written.
        LarderError: Whatever the store raises.
    """
    if store.features.local_path:
        return local_path(store, key)
    path = directory / f"{facts.sha256}.mdb"
    with disk_errors(path):
        directory.mkdir(parents=True, exist_ok=True)
    if not _is_there(path, facts):
        with _turn(path):
            if not _is_there(path, facts):
                _download(store, key, facts, path)
    return path


def _is_there(path: Path, facts: CacheFileFacts) -> bool:
    with disk_errors(path):
        try:
            return path.stat().st_size == facts.bytes
        except FileNotFoundError:
            return False


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Hold a lock that the system lets go of when its holder dies.

    The lock's file stays: were it removed, two processes could hold two files of one name. Where
    there are no locks, several processes download the same file, and each is whole.
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
        message = f"the cache needs {need} and {free} are free"
        hint = f"set {VARIABLE} to a directory with more space"
        raise StoreError("store.full", message, where=str(path.parent), hint=hint)
    with draft(path) as file:
        found = _receive(store, key, file)
        _compare(found, facts, object_url(store.url, key))
        file.publish()


def _receive(store: Store, key: str, file: Draft) -> tuple[int, str]:
    sha256, size_bytes = hashlib.sha256(), 0
    with store.open(key) as reader:
        for buffer in reader:
            sha256.update(buffer)
            file.write(buffer)
            size_bytes += len(buffer)
    return size_bytes, sha256.hexdigest()


def _compare(found: tuple[int, str], facts: CacheFileFacts, url: str) -> None:
    size_bytes, sha256 = found
    if size_bytes != facts.bytes:
        message = f"it has {size_bytes} bytes; {facts.bytes} were published"
        raise DamageError("damage.size", message, where=url)
    if sha256 != facts.sha256:
        message = f"its sha256 is {sha256}, not {facts.sha256}"
        raise DamageError("damage.digest", message, where=url)
