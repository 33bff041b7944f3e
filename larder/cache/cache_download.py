"""Cache files in a remote store, downloaded to a directory of this machine and verified."""

from __future__ import annotations

import os
from pathlib import Path

from larder.cache.cache_record import CacheFileFacts
from larder.store import local_path
from larder.store.base import Store
from larder.store.download import download_once

VARIABLE = "LARDER_CACHE_DIR"
"""Environment variable that names the directory of downloaded cache files."""


def cache_directory(given: str | Path | None = None) -> Path:
    """Return the download directory: ``given``, ``$LARDER_CACHE_DIR`` or ``~/.cache/larder``."""
    return Path(given or os.environ.get(VARIABLE) or "~/.cache/larder").expanduser()


def fetch_file(store: Store, key: str, facts: CacheFileFacts, directory: Path) -> Path:
    """Return the local path of a cache file; download it unless the store is a directory.

    A downloaded file is named by its sha256 and appears after its verification, so no version
    downloads it again. Processes on the machine that need the same file wait for the downloading
    process.
    """
    if store.features.local_path:
        return local_path(store, key)
    path = directory / f"{facts.sha256}.mdb"
    download_once(store, key, path, facts.bytes, facts.sha256)
    return path
