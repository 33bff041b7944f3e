"""Reads the objects of a source from a report, if there are too many to list.

A report is a table in CSV or Parquet, or a manifest of S3 Inventory, which names its tables. Each
table is copied to this machine and read by DuckDB. `larder.manifest.sort` sorts all by key, in
memory that does not depend on the number of objects.

S3 Inventory: https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
(manifests) and .../storage-inventory.html#storage-inventory-contents (columns). Its CSV files have
no header, and their keys are URL-encoded.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from larder.bounds import DOCUMENT_BYTES, parse_bounded
from larder.config.models.locations import Report
from larder.config.urls import StoreUrl, parse_url
from larder.disk import disk_errors
from larder.errors import ConfigError, NotFoundError
from larder.manifest.query import Stream
from larder.manifest.schemas import table
from larder.manifest.sort import sort
from larder.store.base import ObjectInfo, Readable
from larder.store.keys import object_url

if TYPE_CHECKING:
    import duckdb

Open = Callable[[str], Readable]
"""Opens the store at a URL, with the credentials of the source."""

_ROWS = table(
    key="string?",
    size_bytes="int64?",
    etag="string?",
    modified_us="int64?",
    storage_class="string?",
)

_NAMES: Mapping[str, Sequence[str]] = {
    "key": ("key",),
    "size": ("size", "size_bytes"),
    "etag": ("etag", "e_tag"),
    "modified": ("modified", "last_modified", "lastmodifieddate", "last_modified_date"),
    "storage_class": ("storage_class", "storageclass"),
    "latest": ("islatest", "is_latest"),
    "marker": ("isdeletemarker", "is_delete_marker"),
}
"""Names of columns in tables and in S3 Inventory, for CSV and Parquet."""

_MANIFEST = "manifest.json"
_DATED = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}Z)/manifest\.json")
"""The key of a manifest in the prefix of an inventory."""

_ENDINGS = {"parquet": (".parquet",), "csv": (".csv", ".csv.gz")}
_FORMATS = {"CSV": "csv", "Parquet": "parquet"}
_MEMORY_BYTES = 200 << 20
_PAGE_ROWS = 10_000
_SHOWN_COLUMNS = 12


class _ReportFile(NamedTuple):
    """One file of a report; ``md5`` is the report's MD5 of the file in hex, empty without one."""

    store: Readable
    key: str
    md5: str = ""

    @property
    def url(self) -> str:
        return object_url(self.store.url, self.key)


class SourceReport(NamedTuple):
    """A report that lists a source.

    Attributes:
        url: The report: its manifest or its table.
        taken: Time of the report.
        format: ``csv`` or ``parquet``.
        prefix: Beginning of the keys of the source's objects.
        header: The columns of S3 Inventory's CSV files; None if the first line names the columns.
    """

    url: str
    taken: datetime
    format: str
    files: tuple[_ReportFile, ...]
    prefix: str
    header: tuple[str, ...] | None = None

    def pages(self, work_dir: Path) -> Iterator[list[ObjectInfo]]:
        """Yield pages of the source's objects, like a listing of the source.

        Raises:
            ConfigError: ``config.inventory``: a file is missing, damaged or invalid, a key occurs
                twice, or no key belongs to the source.
        """
        last = ""
        for batch in sort(Stream(_ROWS, self._batches(work_dir)), ["key"], work_dir=work_dir):
            for start in range(0, len(batch), _PAGE_ROWS):
                columns = batch.slice(start, _PAGE_ROWS).columns
                page = list(map(ObjectInfo, *(column.to_pylist() for column in columns)))
                for before, key in pairwise([last, *(info.key for info in page)]):
                    if before == key:
                        hint = "let each object have one row: the latest version"
                        raise _error(f"duplicate key {key!r}", self.url, hint)
                last = page[-1].key
                yield page
        if not last and self.prefix:
            message = f"no key in the report begins with {self.prefix!r}, as those of the source do"
            raise _error(message, self.url, "check source.url and source.inventory.url")

    def _batches(self, work_dir: Path) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            with TemporaryDirectory(dir=work_dir, prefix="report-") as folder:
                path = Path(folder) / file.key.rpartition("/")[2]
                _fetch(file, path)
                for batch in _read_rows(path, self, file.url):
                    if batch["key"].null_count or batch["size_bytes"].null_count:
                        message = "a row without a key, or without a size of 0 bytes or more"
                        raise _error(message, file.url)
                    yield batch


def open_report(report: Report, source_url: str, open_at: Open) -> SourceReport:
    """Find the files of a report; ``config.inventory`` if missing or of another bucket."""
    source = parse_url(source_url)
    prefix = "" if source.is_directory else source.prefix
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    store, key = _place(report.url, open_at)
    try:
        return _located(report.url, source, prefix, store, key)
    except NotFoundError:
        raise _error("there is no such report", report.url) from None


def _error(message: str, where: str, hint: str = "") -> ConfigError:
    return ConfigError("config.inventory", message, where=where, hint=hint)


def _place(url: str, open_at: Open) -> tuple[Readable, str]:
    """Open the store with a report, a bucket or a directory two levels up; return the key there.

    The files of a report of S3 Inventory are beside the directory of its manifest.
    """
    parts = parse_url(url)
    if not parts.is_directory:
        return open_at(f"{parts.scheme}://{parts.bucket}/"), parts.prefix
    path = Path(parts.rest)
    root = path.parents[min(1, len(path.parents) - 1)] if path.parents else path
    return open_at(str(root)), path.relative_to(root).as_posix()


def _located(url: str, source: StoreUrl, prefix: str, store: Readable, key: str) -> SourceReport:
    if key.rpartition("/")[2] == _MANIFEST:
        return _inventory(store, key, source, prefix)
    for kind, endings in _ENDINGS.items():
        if key.lower().endswith(endings):
            taken = datetime.fromtimestamp(store.head(key).modified_us / 1e6, UTC)
            return SourceReport(url, taken, kind, (_ReportFile(store, key),), prefix)
    folder = f"{key.rstrip('/')}/" if key.strip("/") else ""
    if newest := _newest(store, folder):
        return _inventory(store, newest, source, prefix)
    hint = "name a manifest.json, a .csv or .parquet file, or the prefix of reports of S3 Inventory"
    raise _error("there is no such report", url, hint)


def _newest(store: Readable, folder: str) -> str:
    """Return the key of the newest manifest below an inventory's prefix; empty if none."""
    keys = [info.key for page in store.list(f"{folder}2") for info in page]  # the 2 begins a year
    return max((key for key in keys if _DATED.fullmatch(key.removeprefix(folder))), default="")


def _inventory(store: Readable, key: str, source: StoreUrl, prefix: str) -> SourceReport:
    """Read a report of S3 Inventory from its manifest, after comparing the checksum beside it."""
    where = object_url(store.url, key)
    if store.head(key).size_bytes > DOCUMENT_BYTES:
        raise _error("not the manifest of a report: it is too large", where)
    data = bytes(store.get(key))
    with suppress(NotFoundError):
        expected = bytes(store.get(f"{key.removesuffix('json')}checksum", length=32))
        if expected.lower() != hashlib.md5(data, usedforsecurity=False).hexdigest().encode():
            raise _error("the manifest differs from its checksum", where)
    try:
        content = parse_bounded(data)
        bucket, kind = content["sourceBucket"], _FORMATS[content["fileFormat"]]
        header = content["fileSchema"].split(",") if kind == "csv" else None
        taken = datetime.fromtimestamp(int(content["creationTimestamp"]) / 1000, UTC)
        files = [_listed(store, key, each) for each in content["files"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = "name the manifest.json of a report of S3 Inventory, in CSV or Parquet"
        raise _error("not the manifest of a report", where, hint) from None
    if source.scheme != "s3" or bucket != source.bucket:
        message = f"the report is of the bucket {bucket!r}, not of the source"
        raise _error(message, where, "check source.url and source.inventory.url")
    names = tuple(name.strip() for name in header) if header else None
    return SourceReport(where, taken, kind, tuple(files), prefix, names)


def _listed(store: Readable, manifest: str, file: Mapping[str, str]) -> _ReportFile:
    """Return a file of a report: in a bucket at its key, in a directory in ``data`` of the copy."""
    key = file["key"]
    if store.features.local_path:
        above = manifest.rpartition("/")[0].rpartition("/")[0]
        key = f"{above}/data/{key.rpartition('/')[2]}".lstrip("/")
    return _ReportFile(store, key, file["MD5checksum"].lower())


def _fetch(file: _ReportFile, path: Path) -> None:
    """Copy a file of a report to this machine, and check its MD5."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with file.store.open(file.key) as reader, disk_errors(path), open(path, "wb") as out:
            for data in reader:
                digest.update(data)
                out.write(data)
    except NotFoundError:
        raise _error("a file of the report is missing", file.url) from None
    if file.md5 and digest.hexdigest() != file.md5:
        raise _error("a file of the report differs from its checksum", file.url)


def _read_rows(path: Path, report: SourceReport, where: str) -> Iterator[pa.RecordBatch]:
    """Yield the source's rows in a file, except its folder; keys are without its prefix."""
    with _read_errors(report.format, where), closing(_connect(path.parent)) as connection:
        if report.format == "csv":
            names = report.header or _header(path)
            # Columns are given by place: DuckDB's detection drops lines that do not fit.
            places = {name: f"c{place}" for place, name in reversed(list(enumerate(names)))}
            columns = ", ".join(f"'c{place}': 'VARCHAR'" for place, _ in enumerate(names))
            file = (
                f"read_csv($path, auto_detect = false, header = {report.header is None}, "
                f"columns = {{{columns}}}, delim = ',', quote = '\"', escape = '\"')"
            )
        else:
            file = "read_parquet($path)"
            names = connection.sql(f"FROM {file}", params={"path": str(path)}).columns
            places = {name: name for name in names}
        chosen = {field: places[name] for field, name in _chosen(names, where).items()}
        select = _statement(chosen, file, encoded=report.header is not None)
        relation = connection.sql(select, params={"path": str(path), "prefix": report.prefix})
        for batch in relation.to_arrow_reader(_PAGE_ROWS):
            yield batch.cast(_ROWS)


def _connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a connection that can read only this folder."""
    import duckdb  # only needed for reports

    connection = duckdb.connect(
        config={
            "threads": "1",
            "memory_limit": f"{_MEMORY_BYTES}B",
            "temp_directory": str(folder / "spill"),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    connection.execute("SET allowed_directories = [$folder]", {"folder": str(folder)})
    for setting in ("enable_external_access = false", "TimeZone = 'UTC'"):
        connection.execute(f"SET {setting}")
    connection.execute("SET lock_configuration = true")
    return connection


def _header(path: Path) -> Sequence[str]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
        return next(csv.reader(text), [])


def _chosen(names: Sequence[str], where: str) -> dict[str, str]:
    """Return the column of each field; refuse a table without a required column."""
    by_name = {name.lower(): name for name in reversed(names)}
    columns: dict[str, str] = {}
    for field, usual in _NAMES.items():
        name = next((by_name[each] for each in usual if each in by_name), None)
        if name is not None:
            columns[field] = name
        elif field in ("key", "size"):
            shown = ", ".join(names[:_SHOWN_COLUMNS])
            hint = f"its columns are {shown}; let one be named {' or '.join(usual)}"
            raise _error(f"there is no column {usual[0]}", where, hint)
    return columns


def _statement(chosen: Mapping[str, str], file: str, *, encoded: bool) -> str:
    """Return the query for `_ROWS` of a file: latest versions; null for a bad key or size."""

    def column(field: str, otherwise: str = "NULL") -> str:
        name = chosen.get(field)
        return otherwise if name is None else '"{}"'.format(name.replace('"', '""'))

    key = f"url_decode(replace({column('key')}, '+', '%20'))" if encoded else column("key")
    # Names of columns are quoted, and everything else is a parameter.
    return f"""
        SELECT
            substr(key, length($prefix) + 1) AS key,
            CASE WHEN size >= 0 THEN size END AS size_bytes,
            coalesce(trim(etag, '"'), '') AS etag,
            coalesce(epoch_us(modified::TIMESTAMPTZ), 0) AS modified_us,
            coalesce(nullif(class, 'STANDARD'), '') AS storage_class
        FROM (
            SELECT
                {key}::VARCHAR AS key,
                {column("size")}::BIGINT AS size,
                {column("etag")}::VARCHAR AS etag,
                {column("modified")} AS modified,
                {column("storage_class")}::VARCHAR AS class
            FROM {file}
            WHERE coalesce({column("latest")}::BOOLEAN, true)
                AND NOT coalesce({column("marker")}::BOOLEAN, false)
        )
        WHERE key IS NULL OR (starts_with(key, $prefix) AND key <> $prefix)
    """  # noqa: S608


@contextmanager
def _read_errors(format_: str, where: str) -> Iterator[None]:
    """Raise errors of DuckDB and gzip as errors of the report."""
    import duckdb

    try:
        yield
    except (duckdb.Error, EOFError, gzip.BadGzipFile, UnicodeDecodeError, csv.Error) as error:
        reason = " ".join(str(error).partition("LINE")[0].split())[:200]
        raise _error(f"not a readable {format_} file ({reason})", where) from error
