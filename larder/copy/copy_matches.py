"""Compares a source with the listing of its copy and with receipts. Pure.

The verdict on an object and its copy:

=========  ===============  =========================================  =======
mirrored?  size             etags                                      verdict
=========  ===============  =========================================  =======
no         --               --                                         missing
yes        differs          --                                         changed
yes        equal            this pair was verified before              same
yes        equal            both MD5 of the content, and equal         same
yes        equal            anything else proves nothing               changed
=========  ===============  =========================================  =======

An object at the storage without an object in the source is

- gone, if a copy wrote it and it has not changed: the source's object was removed since;
- another object, if no copy wrote it or it has changed since: ignored here.

Keys that the globs do not select are neither, because their source is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.query import Stream
from larder.manifest.schemas import DUE, OBJECTS
from larder.manifest.sort import aligned, sort
from larder.samples.arrow_columns import Flags, arrow_flags, column_flags
from larder.source.inventory import object_batches
from larder.store.base import ObjectInfo

_MD5 = "^[0-9a-f]{32}$"

_Places = npt.NDArray[np.int64]


class Match(NamedTuple):
    """Objects of an inventory, the listing of their keys, and receipts for the copies.

    All three are rows of schema OBJECTS. ``receipts`` may have further columns; ``objects`` may
    have only the columns of DUE.

    Attributes:
        receipts: Copies verified before.
        place: For each object, the row of ``listing`` with its key, or -1.
        receipt: For each object, the last row of ``receipts`` for it and its copy, or -1.
    """

    objects: pa.RecordBatch
    listing: pa.RecordBatch
    receipts: pa.RecordBatch
    place: _Places
    receipt: _Places
    same: Flags


def uncopied(
    objects: Iterable[pa.RecordBatch],
    mirrored: Iterable[ObjectInfo],
    receipts: Iterable[pa.RecordBatch],
    record: Iterable[pa.RecordBatch],
    *,
    md5: bool,
    work_dir: Path,
) -> Iterator[pa.RecordBatch]:
    """Yield the objects that differ from their copies by the table above, ordered by key.

    Copies also differ if their record has another etag of the copy and no checksum: such copies
    cannot be read. ``objects`` are of schema DUE, with different keys, and ``mirrored`` is the
    listing of the mirror, with keys as in the source. ``receipts``, ``record`` and ``md5``: see
    `outstanding`.
    """
    with ExitStack() as stack:

        def ordered(schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> Stream:
            batches = sort(Stream(schema, rows), ("key",), work_dir=work_dir)
            return Stream(schema, stack.enter_context(closing(batches)))

        due, listing = ordered(DUE, objects), ordered(OBJECTS, object_batches(mirrored))
        streams = due, listing, Stream(OBJECTS, receipts), Stream(OBJECTS, record)
        for batch, listed, *verified in aligned(streams, ("key",)):
            piece = match(batch, listed, pa.concat_batches(verified), md5=md5)
            yield batch.filter(arrow_flags(~piece.same | _unreadable(piece)))


def _unreadable(piece: Match) -> Flags:
    """Flag objects whose copy fits no receipt, if a receipt of their state has no checksum."""
    receipts = piece.receipts
    at = places(receipts.column("key"), piece.objects.column("key"))
    of_other = equal_values(receipts, "etag", piece.objects, "etag", at)
    of_other &= column_flags(pc.is_null(receipts.column("checksum")))
    flags = np.zeros(piece.objects.num_rows, np.bool_)
    flags[at[of_other]] = True
    return flags & (piece.receipt < 0)


def match(
    objects: pa.RecordBatch, listing: pa.RecordBatch, receipts: pa.RecordBatch, *, md5: bool
) -> Match:
    """Match rows in any order; all rows with the same keys must be present.

    If several receipts fit an object, the last row counts.
    """
    place = places(objects.column("key"), listing.column("key"))
    of_object = places(receipts.column("key"), objects.column("key"))
    fitting = np.flatnonzero(
        equal_values(receipts, "etag", objects, "etag", of_object)
        & equal_values(receipts, "mirror_etag", listing, "etag", np.append(place, -1)[of_object])
    )
    receipt = np.full(objects.num_rows, -1)
    receipt[of_object[fitting]] = fitting
    same = receipt >= 0
    if md5:
        unknown = equal_values(objects, "etag", listing, "etag", place) & ~same
        same |= unknown
        rows = np.flatnonzero(unknown)
        etags = objects.column("etag").take(_arrow_places(rows))
        same[rows] = column_flags(pc.match_substring_regex(etags, _MD5))
    same &= equal_values(objects, "size_bytes", listing, "size_bytes", place)
    return Match(objects, listing, receipts, place, receipt, same)


def places(keys: pa.Array, among: pa.Array) -> _Places:
    """Return each key's place among ``among``, whose keys are all different, or -1."""
    if keys.equals(among):  # the usual case, in a tenth of the time
        return np.arange(len(keys))
    positions = pc.fill_null(pc.index_in(keys, value_set=among), -1)
    at: _Places = positions.to_numpy().astype(np.int64)
    return at


def _arrow_places(places: _Places) -> pa.Array:
    """Return places as a column, null for -1; see `arrow_flags`."""
    buffers = map(pa.py_buffer, (np.packbits(places >= 0, bitorder="little"), places))
    return pa.Array.from_buffers(pa.int64(), len(places), list(buffers))


def taken(rows: pa.RecordBatch, name: str, at: _Places) -> pa.Array:
    """Return the values of some rows, null for -1."""
    return rows.column(name).take(_arrow_places(at))


def equal_values(
    rows: pa.RecordBatch, one: str, others: pa.RecordBatch, other: str, at: _Places
) -> Flags:
    """Compare each row's value with the value at its place among ``others``."""
    same = pc.equal(rows.column(one), taken(others, other, at))
    return column_flags(pc.fill_null(same, False))


class Outstanding(NamedTuple):
    """Comparison of some consecutive keys. All rows are of schema OBJECTS, ordered by key.

    Attributes:
        replaced: Number of due objects in whose place the storage has another object.
        gone: Copies of objects that are no longer in the source, and that the globs select.
        wanted: All other verified copies: the same, and copies that the globs do not select.
        unrecorded: Number of verified copies that the record lacks, or has differently.
        others: Number of other objects at the storage that the globs select.
        markers: Number of folder markers that were left out.
    """

    due: pa.RecordBatch
    replaced: int
    same: pa.RecordBatch
    gone: pa.RecordBatch
    wanted: pa.RecordBatch
    unrecorded: int
    others: int
    markers: int

    @property
    def verified(self) -> pa.RecordBatch:
        """All verified copies at the storage, which a copy lets stay."""
        return in_order(self.wanted, self.gone)


def outstanding(
    objects: Stream,
    listing: Stream,
    receipts: Stream,
    record: Stream,
    *,
    md5: bool,
    sizes: bool,
    markers: bool,
    selected: Callable[[pa.Array], Flags],
) -> Iterator[Outstanding]:
    """Compare, piece by piece; all rows are of schema OBJECTS, ordered by key.

    ``listing`` is of the storage, and ``record`` the manifest of the last copy that ended.
    ``receipts`` are copies of runs that did not end, any number per key, and no key in two
    batches (`larder.manifest.sort.whole_keys`).

    With ``md5``, equal etags of 32 hex digits prove equal contents. With ``sizes``, a copy counts
    although only its size was checked. With ``markers``, the storage can have folder markers: empty
    objects whose keys end in ``/``.
    """
    for batch, listed, *verified in aligned((objects, listing, receipts, record), ("key",)):
        unread = verified[0].num_rows
        rows = pa.concat_batches(verified)
        if not sizes:
            checked = pc.fill_null(pc.not_equal(rows.column("check"), "size"), True)
            if not pc.all(checked, min_count=0).as_py():
                unread = int(pc.sum(checked.slice(0, unread)).as_py() or 0)
                rows = rows.filter(checked)
        yield _of_piece(match(batch, listed, rows, md5=md5), unread, markers, selected)


def _of_piece(
    piece: Match, unread: int, markers: bool, selected: Callable[[pa.Array], Flags]
) -> Outstanding:
    """Return the result for a piece, whose first ``unread`` receipts are not in the record."""
    same = piece.same & ~_unsure(piece)
    due = ~same
    skipped = np.zeros_like(due) if markers else due & _are_markers(piece.objects)
    due &= ~skipped
    kept = _same_rows(piece).filter(arrow_flags(same))
    alone = np.flatnonzero(places(piece.listing.column("key"), piece.objects.column("key")) < 0)
    mine, of_mine = _ours(piece, alone)
    others = np.delete(alone, of_mine)
    left = piece.receipts.take(_arrow_places(mine))
    gone = selected(left.column("key"))
    return Outstanding(
        due=piece.objects.filter(arrow_flags(due)),
        replaced=int(np.sum(piece.place[due] >= 0)),
        same=kept,
        gone=left.filter(arrow_flags(gone)),
        wanted=in_order(kept, left.filter(arrow_flags(~gone))),
        unrecorded=int(np.sum(piece.receipt[same] < unread) + np.sum(mine < unread)),
        others=int(np.sum(selected(piece.listing.column("key").take(_arrow_places(others))))),
        markers=int(np.sum(skipped)),
    )


def _unsure(piece: Match) -> Flags:
    """Flag objects without an etag that may have changed since their copy.

    A report may lack etags. Then an object counts as copied if it is not newer than its copy.
    """
    without = column_flags(pc.equal(piece.objects.column("etag"), ""))
    if not without.any():
        return np.zeros(len(without), np.bool_)
    copied = taken(piece.receipts, "modified", piece.receipt)
    older = pc.fill_null(pc.less_equal(piece.objects.column("modified"), copied), False)
    return without & ~column_flags(older)


def _are_markers(objects: pa.RecordBatch) -> Flags:
    empty = pc.equal(objects.column("size_bytes"), 0)
    return column_flags(pc.and_(empty, pc.ends_with(objects.column("key"), "/")))


def _same_rows(piece: Match) -> pa.RecordBatch:
    """Return a row for each object's copy, which is valid only where both are the same."""
    rows, at, listing = piece.receipts, piece.receipt, piece.listing
    columns = {
        "modified": pc.coalesce(
            taken(rows, "modified", at),
            taken(listing, "modified", piece.place),
            piece.objects.column("modified"),
        ),
        "checksum": taken(rows, "checksum", at),
        "mirror_etag": taken(listing, "etag", piece.place),
        "check": pc.fill_null(taken(rows, "check", at), "md5"),
    }
    arrays = (columns.get(name, piece.objects.column(name)) for name in OBJECTS.names)
    return pa.record_batch(list(arrays), schema=OBJECTS)


def _ours(piece: Match, alone: _Places) -> tuple[_Places, _Places]:
    """Return the receipts of listed rows that copies wrote, and their places in ``alone``."""
    rows = piece.listing.take(_arrow_places(alone))
    at = places(piece.receipts.column("key"), rows.column("key"))
    fitting = np.flatnonzero(
        equal_values(piece.receipts, "mirror_etag", rows, "etag", at)
        & equal_values(piece.receipts, "size_bytes", rows, "size_bytes", at)
    )
    receipt = np.full(len(alone), -1)
    receipt[at[fitting]] = fitting
    of_mine = np.flatnonzero(receipt >= 0)
    return receipt[of_mine], of_mine


def in_order(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    if not other.num_rows:
        return one
    rows = pa.concat_batches([one, other])
    return rows.take(pc.array_sort_indices(rows.column("key")))
