"""The objects of a source from a report: S3 Inventory in CSV and Parquet, and any table."""

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from larder.config.models.locations import Report
from larder.source.reports import SourceReport, open_report
from larder.store import open_store
from larder.store.base import ObjectInfo
from tests.support.errors import larder_error
from tests.support.inventory import CSV_SCHEMA, TAKEN, as_csv, write_report

SOURCE = "s3://source/data/"
ROWS: list[tuple[str, bool, bool, int | None, str, str]] = [
    ("data/b.jpg", True, False, 2, "e2", "STANDARD"),
    ("data/a b+c%/ü.jpg", True, False, 10_000_000_000, "e1-7", "GLACIER"),
    ("data/", True, False, 0, "folder", "STANDARD"),
    ("database/x.jpg", True, False, 1, "x", "STANDARD"),
    ("data/b.jpg", False, False, 1, "old", "STANDARD"),
    ("data/gone.jpg", True, True, None, "", ""),
]
EXPECTED = [("a b+c%/ü.jpg", 10_000_000_000, "e1-7", "GLACIER"), ("b.jpg", 2, "e2", "")]


def opened(url: str, source: str = SOURCE) -> SourceReport:
    return open_report(Report(url=url), source, open_store)


def objects(report: SourceReport, folder: Path) -> list[ObjectInfo]:
    return [info for page in report.pages(folder) for info in page]


def facts(infos: Sequence[ObjectInfo]) -> list[tuple[str, int, str, str]]:
    return [(info.key, info.size_bytes, info.etag, info.storage_class) for info in infos]


@pytest.mark.parametrize("kind", ["CSV", "Parquet"])
@pytest.mark.parametrize("place", ["directory", "memory"])
def test_a_report_of_s3_inventory(kind, place, tmp_path):
    name = f"report-{kind}".lower()
    reports = str(tmp_path / "reports") if place == "directory" else f"memory://{name}"
    store = open_store(reports)
    key = write_report(store, "", kind, [ROWS[:2], ROWS[2:]])
    report = opened(f"{reports}/{key}")
    assert report.taken == TAKEN
    found = objects(report, tmp_path)
    assert facts(found) == EXPECTED
    assert {info.modified_us for info in found} == {
        int(datetime(2026, 11, 19, 12, tzinfo=UTC).timestamp() * 1e6)
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports"][: place == "directory"]


def test_the_newest_report_of_a_prefix(tmp_path):
    store = open_store(str(tmp_path / "reports"))
    key = write_report(store, "daily/", "CSV", [ROWS])
    old = key.replace("2026-11-20", "2026-11-19")
    store.put(old, b"not even json")
    for url in ("reports/daily", "reports/daily/"):
        report = opened(str(tmp_path / url))
        assert report.url.endswith(key)
        assert facts(objects(report, tmp_path)) == EXPECTED


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: (p / "data/0.csv.gz").write_bytes(as_csv(ROWS[:1])),
        lambda p: (p / "data/0.csv.gz").unlink(),
        lambda p: next(p.rglob("*.checksum")).write_text("0" * 32),
        lambda p: next(p.rglob("*.json")).unlink(),
    ],
)
def test_a_damaged_report_is_refused(damage, tmp_path):
    folder = tmp_path / "reports"
    key = write_report(open_store(str(folder)), "", "CSV", [ROWS])
    damage(folder)
    with larder_error("config.inventory"):
        objects(opened(str(folder / key)), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"sourceBucket": "other"},
        {"fileFormat": "ORC"},
        {"files": [{"key": 7}]},
        {"fileSchema": "Bucket, Key"},
        {"fileSchema": CSV_SCHEMA.replace("Size", "ETag2")},
        {"creationTimestamp": "soon"},
    ],
)
def test_a_manifest_that_does_not_fit(changes, tmp_path):
    key = write_report(open_store(str(tmp_path / "r")), "", "CSV", [ROWS], **changes)
    with larder_error("config.inventory"):
        objects(opened(str(tmp_path / "r" / key)), tmp_path)


def test_an_object_in_two_rows_is_refused(tmp_path):
    key = write_report(open_store(str(tmp_path / "r")), "", "CSV", [ROWS, ROWS[:1]])
    with larder_error("config.inventory"):
        objects(opened(str(tmp_path / "r" / key)), tmp_path)


def table(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("name", ["list.csv", "list.csv.gz"])
def test_a_csv_of_keys_and_sizes(name, tmp_path):
    text = '\ufeffSize,Key,note\n2,data/b+%20.jpg,\n1,"data/a,\n"".jpg",x\n'
    report = opened(table(tmp_path / name, text))
    found = objects(report, tmp_path)
    assert facts(found) == [('a,\n".jpg', 1, "", ""), ("b+%20.jpg", 2, "", "")]
    assert report.taken.timestamp() == pytest.approx((tmp_path / name).stat().st_mtime)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-11-19T12:00:00Z", 1795089600),
        ("2026-11-19T14:00:00.000+02:00", 1795089600),
        ("2026-11-19 12:00:00", 1795089600),
        ("", 0),
    ],
)
def test_times(time, expected, tmp_path):
    text = f'key,size_bytes,ETag,last_modified\ndata/x,3,"""e""",{time}\n'
    report = opened(table(tmp_path / "list.csv", text))
    (info,) = objects(report, tmp_path)
    assert (info.key, info.size_bytes, info.etag) == ("x", 3, "e")
    assert info.modified_us == expected * 1_000_000


LINES = [b"", b"data/x,many", b"data/x,", b"data/x,-1", b",1", b"data/x,1,2", b"data/x"]
LINES += [b"other/x,1", b"data/x,1\ndata/x,1", b"data/\xff,1"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("l.csv", b""),
        ("l.csv", b"key\ndata/x\n"),
        ("l.csv", b"key,size,modified\ndata/x,1,soon\n"),
        *(("l.csv", b"key,size\n" + line) for line in LINES),
        ("l.csv.gz", b"key,size\ndata/x,1\n"),
        ("l.csv.gz", gzip.compress(b"key,size\ndata/x,1\n" * 1000, mtime=0)[:-20]),
        ("l.parquet", b"key,size\ndata/x,1\n"),
        ("l.txt", b"key,size\ndata/x,1\n"),
    ],
)
def test_a_table_that_cannot_be_used(name, data, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / name).write_bytes(data)
    with larder_error("config.inventory"):
        objects(opened(str(tmp_path / "r" / name)), tmp_path)
