"""Indexes of archives and tables that plans keep on this machine, for the runs that follow.

A plan writes nothing into the storage, but finding out what is in a bucket's archives may take a
million requests. So it keeps the indexes beside downloaded caches; the run puts them where they
belong, and removes them here. In directories, headers are read again: that is as fast.
"""

from __future__ import annotations

from larder.cache.fetch import cache_directory
from larder.config.models import Dataset
from larder.errors import LarderError
from larder.manifest.digest import canonical_json, sha256_hex
from larder.store import open_store
from larder.store.base import Readable, Store
from larder.store.permissions import is_remote

FOLDER = "indexes"
"""The folder below the directory of downloaded caches."""


def kept_indexes(dataset: Dataset, source: Readable) -> Store | None:
    """The store of the indexes of a source; None for a directory, of which none are kept.

    The store may not exist, and whoever writes to it has to bear that it cannot be written. There
    is none for a user without a home directory, as in some containers.
    """
    if not is_remote(source):
        return None
    of = sha256_hex(canonical_json([source.url, dataset.source.access.endpoint]))[:32]
    try:
        return open_store(str(cache_directory() / FOLDER / of))
    except (RuntimeError, LarderError):
        return None
