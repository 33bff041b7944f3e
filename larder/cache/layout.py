"""The shape of a part: one LMDB file of records.

Keys are the records' ids, counted from 0, eight bytes, big-endian. The schema's document stands
under ``schema``, which sorts after every id, so that a file is written from front to back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SCHEMA_KEY", "CacheFileFacts", "record_key"]

SCHEMA_KEY: Final = b"schema"


@dataclass(frozen=True, slots=True)
class CacheFileFacts:
    """What is published of a part, and checked when it is read.

    Attributes:
        bytes: Length of the file.
        sha256: Of the file; it depends on the page size of the machine that built it.
        digest: Of the schema and the ordered records: see `larder.cache.record.ContentDigest`.
        records: Number of records.
    """

    bytes: int
    sha256: str
    digest: str
    records: int


def record_key(index: int) -> bytes:
    """The key of record ``index``."""
    return index.to_bytes(8, "big")
