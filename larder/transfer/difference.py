"""Finds what is already mirrored: joins the inventory with the mirror's listing and its receipts.

The verdict on an object and its mirrored copy:

=========  ===============  =========================================  =======
mirrored?  size             etags                                      verdict
=========  ===============  =========================================  =======
no         --               --                                         missing
yes        differs          --                                         changed
yes        equal            this pair was verified before              same
yes        equal            both MD5 of the content, and equal         same
yes        equal            anything else proves nothing               changed
=========  ===============  =========================================  =======
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, starmap
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.query import Rows
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import sort
from larder.store.base import ObjectInfo
from larder.transfer.inventory import object_batches

__all__ = ["with_copies"]

_MIRRORED, _OBJECT, _RECEIPT = range(3)

_MD5 = "^[0-9a-f]{32}$"

_Flags = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]

_ROWS = pa.schema([*OBJECTS, pa.field("kind", pa.int32(), nullable=False)])

# Sorted as one stream, so that neighbours can be matched, with memory independent of the rows.
_TIES = "checksum NULLS FIRST, etag, mirror_etag"


def with_copies(
    objects: Iterable[pa.RecordBatch],
    mirrored: Iterable[ObjectInfo],
    receipts: Iterable[pa.RecordBatch],
    *,
    md5: bool,
    work_dir: Path,
) -> Iterator[pa.RecordBatch]:
    """Find the objects that are the same as their copies, according to the table above.

    Memory: that of `larder.manifest.sort.sort`.

    Args:
        objects: Rows of schema OBJECTS: the inventory.
        mirrored: The listing of the mirror, with keys as in the source.
        receipts: Rows of schema OBJECTS: copies verified before, any number per object.
        md5: Whether equal etags of 32 hex digits prove equal contents here.
        work_dir: Directory for temporary files.

    Yields:
        The inventory's rows in the order of their keys, with the ``mirror_etag`` of those that are
        the same and the ``checksum`` of those that were verified before.

    Raises:
        StoreError: ``store.full``: no space is left in ``work_dir``.
    """
    inputs = {
        _MIRRORED: object_batches(mirrored),
        _OBJECT: objects,
        _RECEIPT: receipts,
    }
    rows_in = Rows(_ROWS, chain.from_iterable(starmap(_of_kind, inputs.items())))
    held = _ROWS.empty_table()
    with closing(sort(rows_in, ("key", "kind"), ties=_TIES, work_dir=work_dir)) as batches:
        for batch in batches:
            rows = pa.concat_tables([held, pa.Table.from_batches([batch])])
            last = pc.index(rows.column("key"), batch.column("key")[-1]).as_py()
            held = rows.slice(last)
            yield from _matched(rows.slice(0, last), md5=md5)
    yield from _matched(held, md5=md5)


def _of_kind(kind: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kinds = pa.array(np.full(batch.num_rows, kind, np.int32))
        yield pa.record_batch([*batch.columns, kinds], schema=_ROWS)


def _matched(rows: pa.Table, *, md5: bool) -> Iterator[pa.RecordBatch]:
    """The objects among sorted rows, which contain all rows of their keys, with what was found."""
    if not rows.num_rows:
        return
    keys, kinds = rows.column("key").combine_chunks(), rows.column("kind").to_numpy()
    groups = np.cumsum(pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False))
    groups = np.append(0, groups)
    here, receipts = np.flatnonzero(kinds == _OBJECT), np.flatnonzero(kinds == _RECEIPT)
    listed = _by_group(groups, np.flatnonzero(kinds == _MIRRORED))
    inventory = _by_group(groups, here)
    fitting = receipts[
        _equal(rows, "etag", receipts, "etag", inventory[groups[receipts]])
        & _equal(rows, "mirror_etag", receipts, "etag", listed[groups[receipts]])
    ]
    there, known = listed[groups[here]], _by_group(groups, fitting)[groups[here]]
    same = known >= 0
    if md5:
        equal = _equal(rows, "etag", here, "etag", there)
        same |= equal & _flags(pc.match_substring_regex(rows.column("etag").take(here), _MD5))
    same &= _equal(rows, "size_bytes", here, "size_bytes", there)
    columns = {
        "checksum": _taken(rows, "checksum", np.where(same, known, -1)),
        "mirror_etag": _taken(rows, "etag", np.where(same, there, -1)),
    }
    found = rows.select(OBJECTS.names).take(here)
    for name, column in columns.items():
        found = found.set_column(OBJECTS.get_field_index(name), OBJECTS.field(name), column)
    yield from found.combine_chunks().to_batches()


def _by_group(groups: _Places, rows: _Places) -> _Places:
    """The last of the rows in each group, or -1."""
    found = np.full(groups[-1] + 1, -1)
    found[groups[rows]] = rows
    return found


def _taken(rows: pa.Table, name: str, places: _Places) -> pa.ChunkedArray:
    """The values of these rows, null for -1."""
    return rows.column(name).take(pa.array(places, mask=places < 0))


def _equal(rows: pa.Table, one: str, here: _Places, other: str, there: _Places) -> _Flags:
    return _flags(pc.equal(_taken(rows, one, here), _taken(rows, other, there)))


def _flags(column: pa.ChunkedArray) -> _Flags:
    flags: _Flags = pc.fill_null(column, False).to_numpy()
    return flags
