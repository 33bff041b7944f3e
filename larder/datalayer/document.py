"""cache.json: the last write of a cache, which says what its elements are and which file has them.

::

    STORAGE/ID/VERSION/
      SHA256.mdb             the records, named by the digest of the file
      cache.json             the last write, created if absent
      leases/                of machines that have a copy: see `larder.datalayer.catalog`
      work/conditions.json   in a bucket: which conditional writes it keeps
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from larder.cache.record import CacheFileFacts
from larder.datalayer.elements import Leaf, check_paths
from larder.errors import FatalError
from larder.manifest.sealed import read_sealed
from larder.names import SHA256, Digest, FileName, Rule
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import read_optional

FORMAT: Final = "larder-data-layer-1"
KEY: Final = "cache.json"
YOGADL_KEY: Final = "cache.mdb"

KIND: Final = Rule("tensorflow or arrays", "tensorflow|arrays")
BUILD_AGAIN: Final = "remove it (larder cache rm), or use another version, and it is built anew"


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A cache that is complete.

    Attributes:
        name: ``ID/VERSION``.
        kind: ``tensorflow`` if the function returned a tf.data.Dataset, else ``arrays``.
        function: Digests of what it was, from `larder.datalayer.function`.
        leaves: The arrays of its elements.
        file: Name of the file, below the folder of the document.
        digest: Of its schema and the checksums of its records.
    """

    format: str
    name: str
    kind: Annotated[str, KIND]
    function: Mapping[str, Digest]
    leaves: tuple[Leaf, ...]
    file: FileName
    bytes: int
    sha256: Annotated[str, SHA256]
    digest: Annotated[str, SHA256]
    records: int

    @property
    def facts(self) -> CacheFileFacts:
        return CacheFileFacts(self.bytes, self.sha256, self.digest, self.records, self.name)

    def check(self) -> None:
        """Called where a document is read."""
        check_paths([leaf.path for leaf in self.leaves])
        if not self.records or self.file != f"{self.sha256}.mdb":
            raise ValueError("the file is not that of a cache with records")


def read_cache(store: Store, name: str) -> LayerCache | None:
    """The document of a cache; None while there is none.

    Raises:
        DamageError: It is damaged.
        FatalError: ``cache.format``: there is a cache of YogaDL.
    """
    data = read_optional(store, KEY)
    where = object_url(store.url, KEY)
    if data is None:
        return None
    cache = read_sealed(LayerCache, data, where, FORMAT, hint=BUILD_AGAIN)
    if cache.name != name:
        message = f"it is the cache {cache.name}, copied or moved from there"
        raise FatalError("cache.format", message, where=where, hint=BUILD_AGAIN)
    return cache
