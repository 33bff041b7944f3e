"""Reports of S3 Inventory, as S3 leaves them in a bucket."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyarrow import parquet

from larder.store.base import Store

TAKEN = datetime(2026, 11, 20, 1, 0, tzinfo=UTC)
TIME = "2026-11-19T12:00:00.000Z"
CSV_SCHEMA = (
    "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"
)


def as_csv(rows: Sequence[tuple[Any, ...]]) -> bytes:
    """As S3 writes it: no header, every value in quotes, keys URL-encoded."""
    lines = []
    for key, latest, marker, size, etag, kind in rows:
        flags = (str(latest).lower(), str(marker).lower())
        length = "" if size is None else size
        values = ("source", quote_plus(key, safe="/"), "v1", *flags, length, TIME, etag, kind)
        lines.append(",".join(f'"{value}"' for value in values))
    return gzip.compress(("\n".join(lines) + "\n").encode())


def as_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    names = ("key", "is_latest", "is_delete_marker", "size", "e_tag", "storage_class")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    times = pa.array([datetime(2026, 11, 19, 12)] * len(rows), pa.timestamp("ms"))
    return pa.table({"bucket": ["source"] * len(rows), **columns, "last_modified_date": times})


def as_file(kind: str, rows: Sequence[tuple[Any, ...]]) -> bytes:
    if kind == "CSV":
        return as_csv(rows)
    sink = pa.BufferOutputStream()
    parquet.write_table(as_table(rows), sink, row_group_size=2)
    return bytes(sink.getvalue())


def write_report(
    store: Store, root: str, kind: str, parts: Sequence[Sequence[tuple[Any, ...]]], **changes: Any
) -> str:
    """A report as S3 leaves it; the key of its manifest."""
    ending = {"CSV": "csv.gz", "Parquet": "parquet"}[kind]
    files = []
    for number, rows in enumerate(parts):
        data = as_file(kind, rows)
        key = f"{root}data/{number}.{ending}"
        store.put(key, data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        files.append({"key": key, "size": len(data), "MD5checksum": md5})
    manifest = {
        "sourceBucket": "source",
        "destinationBucket": "arn:aws:s3:::reports",
        "version": "2016-11-30",
        "creationTimestamp": str(int(TAKEN.timestamp() * 1000)),
        "fileFormat": kind,
        "fileSchema": CSV_SCHEMA if kind == "CSV" else "struct<...>",
        "files": files,
        **changes,
    }
    data = json.dumps(manifest).encode()
    folder = f"{root}{TAKEN:%Y-%m-%dT%H-%MZ}/"
    store.put(f"{folder}manifest.json", data)
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    store.put(f"{folder}manifest.checksum", digest.encode())
    return f"{folder}manifest.json"
