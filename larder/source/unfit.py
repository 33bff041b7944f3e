"""Finds objects that cannot be copied, before anything is: unfit keys, and archived objects.

In a bucket, keys have up to 1,024 bytes, including the prefix. In a directory, a key is a path:
segments have up to 255 bytes, and the path up to 4,095. No path can be both a file and a folder, as
``a.d`` would be beside ``a.d/1.jpg``. Some file systems treat names as equal that differ only by
case or Unicode form.

The storage class of an object, from the listing, says whether the object can be read at once:

=======================================  ========================================
storage class                            reading it
=======================================  ========================================
S3 GLACIER, DEEP_ARCHIVE                 refused until the object is restored
S3 INTELLIGENT_TIERING                   refused in an archive tier, which a
                                         listing does not show
S3 GLACIER_IR, STANDARD_IA, ONEZONE_IA;  works, and is charged by the GB
GCS NEARLINE, COLDLINE, ARCHIVE
any other                                works
=======================================  ========================================

A listing does not show either whether an archived object is restored for some days; reading one of
its bytes does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.bounds import MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_PATH_BYTES
from larder.config.urls import parse_url
from larder.disk import TEMPORARY_PREFIX, Folding, folding_of
from larder.errors import Failure, Failures, ObjectError
from larder.manifest.manifest_files import ManifestFile, read_manifest
from larder.manifest.query import Stream
from larder.manifest.schemas import table
from larder.manifest.sort import sort, sorted_query
from larder.samples.arrow_columns import column_texts
from larder.samples.naming import may_be_part
from larder.store import local_path
from larder.store.base import Readable, Store
from larder.store.keys import check_path_key

_DRAFT_BYTES = 64
"""Upper bound of a temporary file name's length."""

_ODD = rf"(^|/)(\.{{0,2}}(/|$)|{re.escape(TEMPORARY_PREFIX)})|\x00"
"""Empty segments, ``.``, ``..``, Larder's temporary names, and NUL."""

_DOTTED_FOLDER = r"\.[^/]*/"

_FOLDED = pa.schema([("folded", pa.string()), ("key", pa.string())])

Reading = Literal["refused", "perhaps", "charged", "free"]
_READING: dict[str, Reading] = {
    "GLACIER": "refused",
    "DEEP_ARCHIVE": "refused",
    "INTELLIGENT_TIERING": "perhaps",
    "GLACIER_IR": "charged",
    "STANDARD_IA": "charged",
    "ONEZONE_IA": "charged",
    "NEARLINE": "charged",
    "COLDLINE": "charged",
    "ARCHIVE": "charged",
}

_REFUSED = pa.array([name for name, reading in _READING.items() if reading == "refused"])

ARCHIVED = table(key="string", storage_class="string")
"""Archived objects, ordered by key."""

KEYS = pa.schema([ARCHIVED.field("key")])

_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Unfit:
    """Keys that a storage cannot hold: the first keys by name, and the number of all."""

    failures: tuple[Failure, ...] = ()
    count: int = 0

    @staticmethod
    def of(failures: Failures) -> Unfit:
        return Unfit(tuple(failures.shown), failures.count)


class Storage(NamedTuple):
    """The limits of a store's keys, each after ``prefix_bytes`` of the bucket's key or path."""

    url: str
    prefix_bytes: int
    path: bool
    folding: Folding

    @staticmethod
    def of(store: Store) -> Storage:
        path = store.features.local_path
        url = parse_url(store.url)
        prefix = url.rest if path else url.prefix
        folding = folding_of(local_path(store, "x").parent) if path else Folding()
        return Storage(store.url, len(prefix.encode(errors="surrogateescape")), path, folding)

    def reason(self, key: str) -> str | None:
        """Return the reason why this store cannot hold a key, as a clause; None if it can."""
        size_bytes = self.prefix_bytes + len(key.encode())
        if not self.path:
            return _too_long("the key", size_bytes, MAX_KEY_BYTES)
        try:
            check_path_key(key, self.url)
        except ObjectError as error:
            return error.message
        name_bytes = len(key.rpartition("/")[2].encode())
        longest = max(size_bytes, size_bytes - name_bytes + _DRAFT_BYTES)
        return _too_long("the path", longest, MAX_PATH_BYTES)

    def suspicious(self, keys: pa.Array, prefix: str) -> pa.Array:
        """Flag keys that may be too long or otherwise unfit, with ``prefix`` before them."""
        before = self.prefix_bytes + len(prefix.encode())
        if not self.path:
            return pc.greater(pc.binary_length(keys), MAX_KEY_BYTES - before)
        room = min(MAX_NAME_BYTES, MAX_PATH_BYTES - before - _DRAFT_BYTES)
        odd = pc.match_substring_regex(keys, _ODD)
        return pc.or_(pc.greater(pc.binary_length(keys), room), odd)


def _too_long(what: str, size_bytes: int, most: int) -> str | None:
    if size_bytes <= most:
        return None
    return f"{what} would have {size_bytes:,} bytes in the storage; the maximum is {most:,}"


def unfit_keys(
    objects: Callable[[], Iterable[pa.RecordBatch]],
    storage: Storage,
    prefix: str,
    *,
    every_key: bool = False,
    work_dir: Path,
    stored: Iterable[pa.RecordBatch] = (),
) -> Unfit:
    """Find the keys of a source that a storage cannot hold.

    Folder markers are skipped where the storage has paths, because they are not copied. Memory is
    bounded.

    Args:
        objects: Returns batches with columns ``key`` and ``size_bytes``, ordered by key; called
            again if folders have names that objects could have.
        storage: The storage.
        prefix: The prefix of each key in the storage.
        every_key: Whether all objects are copied, not only possible parts of samples.
        work_dir: For temporary files.
        stored: Objects already in the storage.
    """
    unfit = Failures()
    for key, reason in _unfit(objects, storage, prefix, every_key):
        unfit.add(Failure(key, "object.bad_key", reason))
    if any(storage.folding):
        is_copied = partial(_is_copied, storage) if every_key else may_be_part
        rows = map(_rows, chain(objects(), stored))
        keys = ([key for key, size_bytes in some if is_copied(key, size_bytes)] for some in rows)
        for one, other in _taken_for_one(keys, storage.folding, work_dir):
            reason = f"the file system takes it and {one} for one, or their folders"
            unfit.add(Failure(other, "object.bad_key", reason))
    return Unfit.of(unfit)


def _taken_for_one(
    keys: Iterable[list[str]], folding: Folding, work_dir: Path
) -> Iterator[tuple[str, str]]:
    """Yield neighbouring keys whose paths, or folders in them, the file system takes for one."""

    def folded() -> Iterator[pa.RecordBatch]:
        for some in keys:
            paths = [folding(key).replace("/", "\0") for key in some]  # "a/1" before "a-1"
            yield pa.record_batch([paths, some], schema=_FOLDED)

    before = ""
    with closing(sort(Stream(_FOLDED, folded()), ("folded", "key"), work_dir=work_dir)) as ordered:
        for key in chain.from_iterable(column_texts(rows.column("key")) for rows in ordered):
            names = zip(before.split("/"), key.split("/"), strict=False)
            one, other = next((pair for pair in names if pair[0] != pair[1]), ("", "/"))
            if folding(one) == folding(other):
                yield before, key
            before = key


def _unfit(
    objects: Callable[[], Iterable[pa.RecordBatch]], storage: Storage, prefix: str, every_key: bool
) -> Iterator[tuple[str, str]]:
    is_copied = partial(_is_copied, storage) if every_key else may_be_part
    dotted = every_key
    for batch in objects():
        keys = batch.column("key")
        suspects = batch.filter(storage.suspicious(keys, prefix))
        for key, size_bytes in _rows(suspects):
            reason = storage.reason(prefix + key) if is_copied(key, size_bytes) else None
            if reason:
                yield key, reason
        # The name of an object has a dot, so a folder without one is not an object.
        dotted = dotted or bool(pc.any(pc.match_substring_regex(keys, _DOTTED_FOLDER)).as_py())
    if storage.path and dotted:
        rows = (row for batch in objects() for row in _rows(batch))
        for key, reason in _inside_objects(rows, is_copied):
            if not storage.reason(prefix + key):  # otherwise it was already reported
                yield key, reason


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    keys, sizes = batch.column("key"), batch.column("size_bytes")
    return zip(column_texts(keys), sizes.to_numpy().tolist(), strict=True)


def _is_copied(storage: Storage, key: str, size_bytes: int) -> bool:
    return not (storage.path and not size_bytes and key.endswith("/"))


def _inside_objects(
    rows: Iterable[tuple[str, int]], is_copied: Callable[[str, int], bool]
) -> Iterator[tuple[str, str]]:
    """Yield objects below a key that is itself an object, with the reason.

    In the order of keys, ``a.d-1.jpg`` comes between ``a.d`` and ``a.d/1.jpg``, but all such keys
    begin with ``a.d``. So only the keys that are prefixes of the current key are remembered.
    """
    beginnings: list[str] = []
    for key, size_bytes in rows:
        while beginnings and not key.startswith(beginnings[-1]):
            beginnings.pop()
        if not is_copied(key, size_bytes):
            continue
        for other in beginnings:
            if key.startswith(f"{other}/"):
                yield (
                    key,
                    f"{other} is also an object, and a path cannot be both a file and a folder",
                )
                break
        beginnings.append(key)


def reading_of(storage_class: str) -> Reading:
    """Return the condition for reading an object of a storage class; see the table above."""
    return _READING.get(storage_class, "free")


def archived_of(objects: pa.RecordBatch) -> pa.RecordBatch:
    objects = objects.select(ARCHIVED.names)
    rows = objects.filter(pc.is_in(objects.column("storage_class"), value_set=_REFUSED))
    return pa.record_batch(rows.columns, schema=ARCHIVED)


def archived_among(
    objects: Iterable[pa.RecordBatch], archived: ManifestFile, work_dir: Path
) -> Unfit:
    """Find the archived objects among ``objects``: the first by name, and their number.

    ``archived`` lists all archived objects in the source; ``objects`` have a column ``key``.
    """
    failures = Failures()
    inputs = {
        "archived": Stream(ARCHIVED, read_manifest(archived.path, ARCHIVED)),
        "keys": Stream(KEYS, (batch.select(KEYS.names) for batch in objects)),
    }
    statement = "SELECT * FROM archived SEMI JOIN keys USING (key)"
    for rows in sorted_query(statement, inputs, ARCHIVED, ["key"], work_dir=work_dir):
        failures.add_counted(_failures(rows.slice(0, failures.room)), rows.num_rows)
    return Unfit.of(failures)


def _failures(rows: pa.RecordBatch) -> Iterator[Failure]:
    for key, name in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield Failure(key, "object.unreadable", f"archived in {name}; restore it first")


def is_restored(source: Readable, keys: Sequence[str]) -> bool:
    """Whether archived objects have been restored, judging by eight of them."""
    step = max(1, len(keys) // _SAMPLES)
    for key in keys[::step][:_SAMPLES]:
        try:
            source.get(key, length=1)
        except ObjectError as error:
            if error.code == "object.unreadable":
                return False
    return True
