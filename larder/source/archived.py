"""Objects in storage classes that cannot be read at once, found in the listing.

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

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import Failure, Failures, ObjectError
from larder.manifest.manifest_files import ManifestFile, read_manifest
from larder.manifest.query import Stream
from larder.manifest.schemas import table
from larder.manifest.sort import sorted_query
from larder.source.storable import Unfit
from larder.store.base import Readable

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
