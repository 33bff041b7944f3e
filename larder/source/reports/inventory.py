"""The objects of a source from a report, when there are too many to list.

The report is read file by file, each through a temporary one, and sorted by key as
`larder.manifest.sort` does: memory does not depend on the number of objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.source import Report
from larder.config.urls import StoreUrl, parse_url
from larder.disk import disk_errors
from larder.errors import NotFoundError
from larder.manifest.query import Rows
from larder.manifest.sort import sort
from larder.source.reports.tables import (
    DATED,
    MANIFEST,
    ROWS,
    Manifest,
    Table,
    read_manifest,
    read_rows,
    report_error,
)
from larder.store.base import ObjectInfo, Readable
from larder.store.keys import object_url

Open = Callable[[str], Readable]
"""Opens the store at a URL, with the credentials of the source."""

_ENDINGS = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".csv.lz4"),
}
_PAGE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a report; its MD5 in hex, if the report says what it should be."""

    store: Readable
    key: str
    md5: str = ""

    @property
    def url(self) -> str:
        return object_url(self.store.url, self.key)


@dataclass(frozen=True, slots=True)
class Reported:
    """A report that lists a source.

    Attributes:
        url: The report: its manifest, its table, or the prefix of its tables.
        taken: When it was made.
        prefix: What the keys of the source's objects begin with.
    """

    url: str
    taken: datetime
    table: Table
    files: tuple[_File, ...]
    prefix: str

    def pages(self, work_dir: Path) -> Iterator[list[ObjectInfo]]:
        """Pages of the source's objects, as a listing of the source returns them;
        ``config.inventory`` if a file is missing, damaged or not what it should be, a key occurs
        twice, or no key is of the source.
        """
        last, found = None, False
        for batch in sort(Rows(ROWS, self._batches(work_dir)), ["key"], work_dir=work_dir):
            found = True
            for start in range(0, len(batch), _PAGE_ROWS):
                page = _objects(batch.slice(start, _PAGE_ROWS))
                last = self._once(page, last)
                yield page
        if not found and self.prefix:
            message = f"no key in the report begins with {self.prefix!r}, as those of the source do"
            raise report_error(message, self.url, "check source.url and source.inventory.url")

    def _batches(self, work_dir: Path) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            with TemporaryDirectory(dir=work_dir, prefix="report-") as folder:
                path = Path(folder) / file.key.rpartition("/")[2]
                _fetch(file, path)
                for batch in read_rows(path, self.table, file.url):
                    yield _below(batch, self.prefix)

    def _once(self, page: list[ObjectInfo], last: str | None) -> str:
        for info in page:
            if info.key == last:
                hint = "let each object have one row: the latest version"
                raise report_error(f"duplicate key {info.key!r}", self.url, hint)
            last = info.key
        assert last is not None, "pages are not empty"
        return last


def open_report(report: Report, source_url: str, open_at: Open) -> Reported:
    """Find the files of a report; ``config.inventory`` if it is of another bucket."""
    source = parse_url(source_url)
    prefix = "" if source.is_directory or source.scheme == "memory" else source.prefix
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    store, key = _place(report.url, open_at)
    try:
        return _found(report, source, prefix, store, key)
    except NotFoundError:
        raise report_error("there is no such report", report.url) from None


def _found(report: Report, source: StoreUrl, prefix: str, store: Readable, key: str) -> Reported:
    kind = report.format if report.format != "auto" else _kind(key)
    if kind in _ENDINGS and key.lower().endswith(_ENDINGS[kind]):
        files = [_File(store, key)]
    elif key.rpartition("/")[2] == MANIFEST:
        return _inventory(store, key, source, prefix)
    else:
        folder = f"{key.rstrip('/')}/" if key.strip("/") else ""
        if kind in ("", "s3-inventory"):
            newest = _newest(store, folder)
            if newest:
                return _inventory(store, newest, source, prefix)
        kind, files = _tables(store, folder, kind, report.url)
    taken = max(store.head(file.key).modified_us for file in files)
    return Reported(
        url=report.url,
        taken=datetime.fromtimestamp(taken / 1e6, UTC),
        table=Table(kind, columns=report.columns),
        files=tuple(files),
        prefix=prefix,
    )


def _place(url: str, open_at: Open) -> tuple[Readable, str]:
    """The store with a report, and its key there: the bucket, or a directory two levels up.

    The files of a report of S3 Inventory are beside the directory of its manifest.
    """
    parts = parse_url(url)
    if not parts.is_directory:
        return open_at(f"{parts.scheme}://{parts.bucket}/"), parts.prefix
    path = Path(parts.rest)
    root = path.parents[min(1, len(path.parents) - 1)] if path.parents else path
    return open_at(str(root)), path.relative_to(root).as_posix()


def _kind(key: str) -> str:
    """The format that a name tells; empty if it tells none."""
    if key.rpartition("/")[2] == MANIFEST:
        return "s3-inventory"
    lower = key.lower()
    return next((kind for kind, endings in _ENDINGS.items() if lower.endswith(endings)), "")


def _newest(store: Readable, folder: str) -> str:
    """The newest manifest in the prefix of an inventory; empty if there is none."""
    newest = ("", "")
    for page in store.list(f"{folder}2"):  # the year; not the data, which are many
        for info in page:
            match = DATED.fullmatch(info.key.removeprefix(folder))
            if match:
                newest = max(newest, (match[1], info.key))
    return newest[1]


def _tables(store: Readable, folder: str, kind: str, url: str) -> tuple[str, list[_File]]:
    """All tables below a prefix; of one format, if that is not given."""
    kinds = [kind] if kind in _ENDINGS else list(_ENDINGS)
    found: dict[str, list[_File]] = {each: [] for each in kinds}
    for page in store.list(folder):
        for info in page:
            of = _kind(info.key)
            if of in found:
                found[of].append(_File(store, info.key))
    found = {each: files for each, files in found.items() if files}
    if len(found) == 1:
        return next(iter(found.items()))
    message = "CSV and Parquet files in one report" if found else "there is no such report"
    hint = "name a manifest.json, a .csv or .parquet file, or a prefix that has some"
    raise report_error(message, url, "set source.inventory.format" if found else hint)


def _inventory(store: Readable, key: str, source: StoreUrl, prefix: str) -> Reported:
    where = object_url(store.url, key)
    manifest = read_manifest(store, key, where)
    if source.scheme != "s3" or manifest.bucket != source.bucket:
        message = f"the report is of the bucket {manifest.bucket!r}, not of the source"
        raise report_error(message, where, "check source.url and source.inventory.url")
    return Reported(where, manifest.taken, manifest.table, _files(store, key, manifest), prefix)


def _files(store: Readable, key: str, manifest: Manifest) -> tuple[_File, ...]:
    """The files of a report: in a bucket under their keys, in a directory where they were put."""
    if not store.features.local_path:
        return tuple(_File(store, file.key, file.md5) for file in manifest.files)
    beside = key.rpartition("/")[0]
    above = beside.rpartition("/")[0]
    found = []
    for file in manifest.files:
        name = file.key.rpartition("/")[2]
        usual, other = (f"{folder}/{name}".lstrip("/") for folder in (f"{above}/data", beside))
        found.append(_File(store, other if _is_there(store, other) else usual, file.md5))
    return tuple(found)


def _is_there(store: Readable, key: str) -> bool:
    try:
        store.head(key)
    except NotFoundError:
        return False
    return True


def _fetch(file: _File, path: Path) -> None:
    """Copy a file of a report to this machine, and check its MD5."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with file.store.open(file.key) as reader, disk_errors(path), open(path, "wb") as out:
            for data in reader:
                digest.update(data)
                out.write(data)
    except NotFoundError:
        raise report_error("a file of the report is missing", file.url) from None
    if file.md5 and digest.hexdigest() != file.md5:
        raise report_error("a file of the report differs from its checksum", file.url)


def _below(batch: pa.RecordBatch, prefix: str) -> pa.RecordBatch:
    """The rows of the source, their keys without its prefix; not the folder itself."""
    keys = batch.column("key")
    if prefix:
        batch = batch.filter(pc.starts_with(keys, prefix))
        keys = pc.utf8_slice_codeunits(batch.column("key"), len(prefix))
        batch = batch.set_column(0, ROWS.field("key"), keys)
    return batch.filter(pc.not_equal(keys, ""))


def _objects(batch: pa.RecordBatch) -> list[ObjectInfo]:
    times = batch.column("modified").cast(pa.int64())
    names = ("key", "size_bytes", "etag")
    columns = [*(batch.column(name) for name in names), times, batch.column("storage_class")]
    return list(map(ObjectInfo, *(column.to_pylist() for column in columns)))
