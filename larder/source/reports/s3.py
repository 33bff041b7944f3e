"""The manifest of an S3 Inventory report: its files, and whether they are all there.

Format: https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from larder.errors import NotFoundError
from larder.source.reports.tables import Table, report_error
from larder.store.base import Readable

MANIFEST = "manifest.json"

DATED = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}Z)/manifest\.json")
"""The key of a manifest in the prefix of an inventory."""

_FORMATS = {"CSV": "csv", "Parquet": "parquet", "ORC": "orc"}
_MOST_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a report: its key in the destination bucket, and its MD5 in hex."""

    key: str
    md5: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A report on ``bucket``, ``taken`` when it was begun."""

    bucket: str
    taken: datetime
    table: Table
    files: tuple[Listed, ...]


def read_manifest(store: Readable, key: str, where: str) -> Manifest:
    """Read a manifest, and check it against its checksum if that is beside it."""
    if store.head(key).size_bytes > _MOST_BYTES:
        raise report_error("not the manifest of a report: it is too large", where)
    data = bytes(store.get(key))
    with suppress(NotFoundError):
        expected = (
            bytes(store.get(f"{key.removesuffix('json')}checksum", length=32)).strip().lower()
        )
        if expected != hashlib.md5(data, usedforsecurity=False).hexdigest().encode():
            raise report_error("the manifest differs from its checksum", where)
    try:
        return _parsed(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = "name the manifest.json of a report of S3 Inventory"
        raise report_error("not the manifest of a report", where, hint) from None


def _parsed(content: Any) -> Manifest:
    kind = _FORMATS[content["fileFormat"]]
    header = None
    if kind == "csv":
        header = tuple(name.strip() for name in content["fileSchema"].split(","))
    return Manifest(
        bucket=content["sourceBucket"],
        taken=datetime.fromtimestamp(int(content["creationTimestamp"]) / 1000, UTC),
        table=Table(kind, header),
        files=tuple(Listed(file["key"], file["MD5checksum"].lower()) for file in content["files"]),
    )
