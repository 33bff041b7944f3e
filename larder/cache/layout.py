"""The layout of a cache file: an LMDB file of records.

Keys are the records' ids, counted from 0, eight bytes, big-endian. The schema is stored under the
key ``schema``, which sorts after every id, so that a file is written from front to back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCHEMA_KEY: Final = b"schema"


@dataclass(frozen=True, slots=True)
class CacheFileFacts:
    """The published facts of a cache file, which are checked when it is read.

    Attributes:
        sha256: Digest of the file; depends on the page size of the machine that built it.
        digest: Digest of the schema and the ordered records; see
            `larder.cache.record.ContentDigest`.
    """

    bytes: int
    sha256: str
    digest: str
    records: int


def record_key(index: int) -> bytes:
    return index.to_bytes(8, "big")
