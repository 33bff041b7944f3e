"""Whatever the keys, a report of them lists the same objects as the store."""

import csv
import gzip
import hashlib
import io
import json
import tempfile
from pathlib import Path
from urllib.parse import quote_plus

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from larder.config.models import Report
from larder.source.reports import open_report
from larder.store import open_store

KEYS = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12
)
OBJECTS = st.dictionaries(
    KEYS, st.tuples(st.integers(0, 2**63 - 1), st.sampled_from(["", "e", "0a-3"])), max_size=8
)
PREFIXES = st.sampled_from(["", "p/", "a b+%2F/ü/", "p"])

Objects = dict[str, tuple[int, str]]


def table(objects: Objects, prefix: str) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([prefix + key for key in objects], pa.string()),
            "size": pa.array([size for size, _ in objects.values()], pa.int64()),
            "e_tag": pa.array([etag for _, etag in objects.values()], pa.string()),
        }
    )


def written(kind: str, objects: Objects, prefix: str) -> bytes:
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        parquet.write_table(table(objects, prefix), sink, row_group_size=3)
        return sink.getvalue().to_pybytes()
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL)
    if kind == "table":
        rows.writerow(["etag", "key", "size"])
    for key, (size, etag) in objects.items():
        full = prefix + key
        rows.writerow([etag, full, size] if kind == "table" else [quote_plus(full), size, etag])
    return gzip.compress(text.getvalue().encode())


def report(kind: str, folder: Path, objects: Objects, prefix: str) -> str:
    data = written(kind, objects, prefix)
    if kind == "table":
        (folder / "list.csv.gz").write_bytes(data)
        return str(folder / "list.csv.gz")
    name = {"csv": "0.csv.gz"}.get(kind, f"0.{kind}")
    (folder / "data").mkdir()
    (folder / "data" / name).write_bytes(data)
    manifest = {
        "sourceBucket": "bucket",
        "creationTimestamp": "1795140000000",
        "fileFormat": {"csv": "CSV", "parquet": "Parquet"}[kind],
        "fileSchema": "Key, Size, ETag",
        "files": [
            {
                "key": f"elsewhere/data/{name}",
                "MD5checksum": hashlib.md5(data, usedforsecurity=False).hexdigest(),
            }
        ],
    }
    (folder / "day").mkdir()
    (folder / "day" / "manifest.json").write_text(json.dumps(manifest))
    return str(folder / "day" / "manifest.json")


@given(st.sampled_from(["csv", "parquet", "table"]), OBJECTS, PREFIXES)
def test_a_report_lists_every_object_once_and_in_order(kind, objects, prefix):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = report(kind, folder, {**objects, "last": (1, "")}, prefix)
        whole = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
        source = f"s3://bucket/{prefix}"
        inside = {
            (prefix + key)[len(whole) :]: facts
            for key, facts in {**objects, "last": (1, "")}.items()
            if (prefix + key).startswith(whole) and prefix + key != whole
        }
        if not inside:
            return
        found = [
            info
            for page in open_report(Report(url=url), source, open_store).pages(folder)
            for info in page
        ]
        assert {info.key: (info.size_bytes, info.etag) for info in found} == inside
        assert [info.key for info in found] == sorted(inside, key=str.encode)
