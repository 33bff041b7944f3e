"""cache.json: the last write of a cache, with the description and the files of its elements.

::

    STORAGE/ID/VERSION/
      SHA256.mdb ...         the records, in files named by their digests
      cache.json             the last write, created if absent
      leases/                leases of machines with a copy: see `larder.datalayer.cache_catalog`
      work/conditions.json   in a bucket: the conditional writes that the bucket honours
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from larder.cache.cache_record import CacheFileFacts
from larder.cache.schema import check_room
from larder.datalayer.elements import Leaf, check_paths, stored_schema
from larder.errors import FatalError
from larder.manifest.sealed import read_sealed
from larder.names import SHA256, Digest, TextRule
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import once_more, read_optional

FORMAT: Final = "larder-data-layer-2"
KEY: Final = "cache.json"
YOGADL_KEY: Final = "cache.mdb"

KIND: Final = TextRule("tensorflow or arrays", "tensorflow|arrays")
BUILD_AGAIN: Final = "remove it (larder cache rm), or use another version, and it is built anew"


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A file of a cache; ``digest`` covers the schema and the checksums of the records."""

    bytes: int
    sha256: Annotated[str, SHA256]
    digest: Annotated[str, SHA256]
    records: int

    @property
    def name(self) -> str:
        return f"{self.sha256}.mdb"

    def check(self) -> None:
        """Raise ValueError for impossible sizes; called when a document is read."""
        if not 0 < self.records <= self.bytes:
            raise ValueError(f"a file of {self.bytes} bytes has {self.records} records")


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A complete cache ``ID/VERSION``.

    Attributes:
        kind: ``tensorflow`` if the function returned a tf.data.Dataset, else ``arrays``.
        function: Digests from `larder.datalayer.function`.
        files: Files in the order of the records.
    """

    format: str
    name: str
    kind: Annotated[str, KIND]
    function: Mapping[str, Digest]
    leaves: tuple[Leaf, ...]
    files: tuple[LayerFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def digest(self) -> str:
        return hashlib.sha256("".join(file.digest for file in self.files).encode()).hexdigest()

    def facts(self, number: int) -> CacheFileFacts:
        file, place = self.files[number], file_place(self.name, number)
        return CacheFileFacts(file.bytes, file.sha256, file.digest, file.records, place)

    def check(self) -> None:
        """Raise ValueError for an invalid document; called when a document is read."""
        check_paths([leaf.path for leaf in self.leaves])
        if not self.files:
            raise ValueError("it has no files")
        try:
            fields = stored_schema(self.leaves).fields
        except FatalError as error:
            raise ValueError(error.message) from None
        for file in self.files:
            check_room(fields, file.records, file.bytes)


def file_place(name: str, number: int) -> str:
    """Return the identity of a cache file, by which records of another file fail the check."""
    return f"{name}/{number}"


def read_cache(store: Store, name: str) -> LayerCache | None:
    """Return the document of a cache; None if it is missing, ``cache.format`` if of another."""
    where = object_url(store.url, KEY)

    def read() -> LayerCache | None:
        if (data := read_optional(store, KEY)) is None:
            return None
        return read_sealed(LayerCache, data, where, FORMAT, hint=BUILD_AGAIN, older=BUILD_AGAIN)

    cache = once_more(read)
    if cache and cache.name != name:
        message = f"it is the cache {cache.name}, copied or moved from there"
        raise FatalError("cache.format", message, where=where, hint=BUILD_AGAIN)
    return cache
