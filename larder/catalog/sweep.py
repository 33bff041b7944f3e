"""Deletes units of a tombstone that nothing needs; docs/design/007-cleaning.md has the order."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from itertools import islice

from larder.catalog.due import InUse
from larder.catalog.holdings import Needed, document_of, larders_files
from larder.errors import NotFoundError, PreconditionError, SupersededError
from larder.jobs.results import Totals
from larder.manifest.sealed import seal
from larder.names import ID
from larder.progress import Progress
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, published_file_errors, read_optional
from larder.versions.leases import NamedTombstone
from larder.versions.publish import Conditions

STAGE = "clean"

AT_ONCE = 1_000
"""Maximum number of deletions after one look at the tombstone."""


def delete_objects(
    root: Store, infos: list[ObjectInfo], threads: int, progress: Progress
) -> Totals:
    def delete(info: ObjectInfo) -> None:
        root.delete(info.key)
        progress.advance(STAGE, objects=1, bytes=info.size_bytes)

    with ThreadPoolExecutor(threads, thread_name_prefix=STAGE) as pool:
        for _ in pool.map(delete, infos):
            pass
    return Totals(len(infos), sum(info.size_bytes for info in infos))


@dataclass
class Sweep:
    """The deletion of a tombstone's units by this clean, until another clean takes it over.

    ``reasons`` say why this clean keeps versions (`kept_versions`), and ``young`` are units that it
    keeps. The clean that announced them may have had another policy, and a run may have written to
    them since.
    """

    _root: Store
    dataset: InitVar[str]
    _tombstone: NamedTombstone
    _reasons: Mapping[str, str]
    _young: frozenset[str]
    _threads: int
    _progress: Progress
    done: Totals = field(default_factory=Totals)

    def __post_init__(self, dataset: str) -> None:
        self._is_larders = larders_files(dataset).fullmatch
        self._data = seal(replace(self._tombstone.tombstone, cleaner=secrets.token_hex(8)))

    def begin(self, conditions: Conditions) -> None:
        """Write into the tombstone that this clean deletes.

        SupersededError, also by the other methods: another clean has taken the tombstone over.
        """
        key, _, info = self._tombstone
        try:
            with published_file_errors():
                etag = info.etag if conditions.if_match else None
                self._root.put(key, self._data, if_match=etag)
        except (PreconditionError, NotFoundError):
            raise self._taken_over() from None

    def delete_versions(self, needed: Needed) -> set[str]:
        """Delete the documents of versions that may go, and return the IDs."""
        gone = {
            version
            for version in needed.named
            if f"versions/{version}" in self._tombstone.tombstone.prefixes
            and version not in needed.versions
            and not self._reasons.get(version, "published since")
        }
        self._delete(self._documents(f"versions/{version}" for version in sorted(gone)))
        return gone

    def delete_units(self, needed: Needed, gone: set[str]) -> None:
        """Delete the other units, once the documents of all versions that go are deleted.

        Units that this clean keeps or others need stay, and are no longer announced.
        """
        in_use = replace(InUse.of(needed, needed.named.keys() - gone), young=self._young)
        for prefix in self._tombstone.tombstone.prefixes:
            if not in_use.has(prefix):
                self._delete_unit(prefix)
        self._check()
        self._root.delete(self._tombstone.key)

    def _documents(self, prefixes: Iterable[str]) -> list[ObjectInfo]:
        infos = []
        for key in filter(None, map(document_of, prefixes)):
            with suppress(NotFoundError):
                infos.append(self._root.head(key))
        return infos

    def _delete_unit(self, prefix: str) -> None:
        """Delete cache documents, the unit's document, then the rest.

        So readers find a unit whole, or unfinished.
        """
        caches = listed(self._root, f"{prefix}/caches/")
        is_document = re.compile(f"{prefix}/caches/{ID.regex}/cache.json").fullmatch
        self._delete([info for info in caches if is_document(info.key)])
        self._delete(self._documents([prefix]))
        start = ""
        while infos := list(islice(self._objects(prefix, start), AT_ONCE)):
            self._delete(infos)
            start = infos[-1].key

    def _objects(self, prefix: str, start: str) -> Iterator[ObjectInfo]:
        infos = listed(self._root, f"{prefix}/", start_after=start)
        return (info for info in infos if self._is_larders(info.key))

    def _delete(self, infos: list[ObjectInfo]) -> None:
        self._check()
        self.done += delete_objects(self._root, infos, self._threads, self._progress)

    def _check(self) -> None:
        """Raise an error if another clean has taken over: it has written the tombstone anew."""
        if read_optional(self._root, self._tombstone.key) != self._data:
            raise self._taken_over()

    def _taken_over(self) -> SupersededError:
        where = object_url(self._root.url, self._tombstone.key)
        message = "another clean deletes this"
        return SupersededError("version.cleaned", message, where=where, hint="let it end")
