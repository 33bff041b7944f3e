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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.merge import aligned_all, whole_keys
from larder.manifest.query import Rows
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import sort
from larder.source.objects import object_batches
from larder.store.base import ObjectInfo

_MD5 = "^[0-9a-f]{32}$"

_Flags = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]

_TIES = ("checksum", "etag", "mirror_etag")


@dataclass(frozen=True, slots=True)
class Match:
    """Some objects of an inventory, what is there under their keys, and what is known of that.

    All three are rows of schema OBJECTS; ``receipts`` may have further columns.

    Attributes:
        receipts: Copies verified before.
        place: For each object, the row of ``there`` with its key, or -1.
        known: For each object, the last row of ``receipts`` for it and its copy, or -1.
    """

    objects: pa.RecordBatch
    there: pa.RecordBatch
    receipts: pa.RecordBatch
    place: _Places
    known: _Places
    same: _Flags


def with_copies(
    objects: Iterable[pa.RecordBatch],
    mirrored: Iterable[ObjectInfo],
    receipts: Iterable[pa.RecordBatch],
    *,
    md5: bool,
    work_dir: Path,
) -> Iterator[pa.RecordBatch]:
    """Find the objects that are the same as their copies, according to the table above.

    Memory: that of `larder.manifest.sort.sort`. Inputs that come in the order of their keys are not
    sorted.

    Args:
        objects: Rows of schema OBJECTS: the inventory.
        mirrored: The listing of the mirror, with keys as in the source.
        receipts: Rows of schema OBJECTS: copies verified before, any number per object.
        md5: Whether equal etags of 32 hex digits prove equal contents here.
        work_dir: Directory for temporary files.
    """
    with ExitStack() as stack:

        def ordered(batches: Iterable[pa.RecordBatch], ties: Sequence[str] = ()) -> Rows:
            rows = sort(Rows(OBJECTS, batches), ("key",), ties=ties, work_dir=work_dir)
            return Rows(OBJECTS, stack.enter_context(closing(rows)))

        known = Rows(OBJECTS, whole_keys(ordered(receipts, _TIES).batches, "key"))
        streams = ordered(objects), ordered(object_batches(mirrored)), known
        for found in matches(*streams, md5=md5):
            if found.objects.num_rows:
                yield _filled(found)


def _filled(found: Match) -> pa.RecordBatch:
    columns = {
        "checksum": taken(found.receipts, "checksum", np.where(found.same, found.known, -1)),
        "mirror_etag": taken(found.there, "etag", np.where(found.same, found.place, -1)),
    }
    return replaced(found.objects, columns)


def replaced(rows: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Rows of schema OBJECTS with other values in some columns."""
    arrays = (columns.get(name, rows.column(name)) for name in OBJECTS.names)
    return pa.record_batch(list(arrays), schema=OBJECTS)


def matches(objects: Rows, there: Rows, *receipts: Rows, md5: bool) -> Iterator[Match]:
    """Match streams that are sorted by their keys, piece by piece.

    Those of ``receipts`` have the same columns, and none divides the rows of a key
    (`larder.manifest.merge.whole_keys`); of two that fit, one of a later stream, or a later one of
    the same stream, counts.
    """
    for mine, theirs, *known in aligned_all((objects, there, *receipts), ("key",)):
        yield match(mine, theirs, pa.concat_batches(known), md5=md5)


def match(
    objects: pa.RecordBatch, there: pa.RecordBatch, receipts: pa.RecordBatch, *, md5: bool
) -> Match:
    """Match rows in any order, among which are all with the same keys; see `matches`."""
    place = places(objects.column("key"), there.column("key"))
    of_object = places(receipts.column("key"), objects.column("key"))
    fitting = np.flatnonzero(
        equal_values(receipts, "etag", objects, "etag", of_object)
        & equal_values(receipts, "mirror_etag", there, "etag", _through(place, of_object))
    )
    known = np.full(objects.num_rows, -1)
    known[of_object[fitting]] = fitting
    same = known >= 0
    if md5:
        unknown = equal_values(objects, "etag", there, "etag", place) & ~same
        same |= unknown
        asked = np.flatnonzero(unknown)
        etags = objects.column("etag").take(pa.array(asked))
        same[asked] = _flags(pc.match_substring_regex(etags, _MD5))
    same &= equal_values(objects, "size_bytes", there, "size_bytes", place)
    return Match(objects, there, receipts, place, known, same)


def places(keys: pa.Array, among: pa.Array) -> _Places:
    """For each key its place among others, which are all different, or -1."""
    if keys.equals(among):
        return np.arange(len(keys))
    if not len(among):
        return np.full(len(keys), -1)
    found = pc.fill_null(pc.index_in(keys, value_set=among), -1)
    at: _Places = found.to_numpy().astype(np.int64)
    return at


def taken(rows: pa.RecordBatch, name: str, at: _Places) -> pa.Array:
    """The values of some rows, null for -1."""
    return rows.column(name).take(pa.array(at, mask=at < 0))


def _through(place: _Places, at: _Places) -> _Places:
    """``place[at]``, and -1 for -1."""
    if not len(place):
        return np.full(len(at), -1)
    return np.where(at < 0, -1, place[at])


def equal_values(
    rows: pa.RecordBatch, one: str, others: pa.RecordBatch, other: str, at: _Places
) -> _Flags:
    """Whether each row has the same value as the one at its place among others."""
    return _flags(pc.equal(rows.column(one), taken(others, other, at)))


def _flags(column: pa.Array) -> _Flags:
    flags: _Flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False).copy()
    return flags
