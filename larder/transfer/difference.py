"""What has to be copied: the source's inventory held against what the storage has. Pure.

An object is the same as its mirrored copy if

=========  ===============  =========================================  =======
mirrored?  size             etags                                      verdict
=========  ===============  =========================================  =======
no         --               --                                         missing
yes        differs          --                                         changed
yes        equal            this pair was verified before              same
yes        equal            both md5 of the content, and equal         same
yes        equal            anything else proves nothing               changed
=========  ===============  =========================================  =======
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from larder.store.base import ObjectInfo
from larder.store.etags import is_md5

__all__ = ["KnownCopy", "Verdict", "compare", "judge"]

Verdict = Literal["missing", "changed", "same"]


@dataclass(frozen=True, slots=True)
class KnownCopy:
    """A copy that was verified: source and mirrored etags, and the content's CRC32C."""

    key: str
    source_etag: str
    etag: str
    checksum: str | None


def judge(
    source: ObjectInfo, mirrored: ObjectInfo | None, known: KnownCopy | None, *, md5: bool
) -> Verdict:
    """The table above for one object; ``md5``: etags of both stores are md5 where they can be."""
    if mirrored is None:
        return "missing"
    if mirrored.size_bytes != source.size_bytes:
        return "changed"
    if known and (known.source_etag, known.etag) == (source.etag, mirrored.etag):
        return "same"
    if md5 and is_md5(source.etag) and source.etag == mirrored.etag:
        return "same"
    return "changed"


def compare(
    source: Iterable[ObjectInfo],
    mirrored: Iterable[ObjectInfo],
    known: Iterable[KnownCopy],
    *,
    md5: bool,
) -> Iterator[tuple[ObjectInfo, Verdict, ObjectInfo | None, KnownCopy | None]]:
    """One verdict per source object, in one pass over streams that are ordered by key.

    ``known`` may hold several rows of one key; the last that fits counts. Memory does not grow.
    """
    objects = _Ahead(mirrored)
    copies = _Ahead(known)
    for info in source:
        there = objects.last(info.key)
        candidates = copies.all(info.key)
        fitting = [
            copy
            for copy in candidates
            if there and (copy.source_etag, copy.etag) == (info.etag, there.etag)
        ]
        pair = fitting[-1] if fitting else None
        yield info, judge(info, there, pair, md5=md5), there, pair


Row = TypeVar("Row", ObjectInfo, KnownCopy)


class _Ahead(Generic[Row]):
    """Looks rows up by key in a stream that is ordered by key, for keys that only grow."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: Iterator[Row] = iter(rows)
        self._next: Row | None = next(self._rows, None)

    def all(self, key: str) -> list[Row]:
        wanted = key.encode(errors="surrogatepass")
        found: list[Row] = []
        while self._next is not None and (
            self._next.key == key or self._next.key.encode(errors="surrogatepass") < wanted
        ):
            if self._next.key == key:
                found.append(self._next)
            self._next = next(self._rows, None)
        return found

    def last(self, key: str) -> Row | None:
        found = self.all(key)
        return found[-1] if found else None
