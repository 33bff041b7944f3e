"""Copies objects on the server, and checks the copies.

The verdict on a copy that the server says it has made::

    etag of the copy    it is listed with     verify    verdict
    the source's        its size and etag               copied
    the source's        anything else                   the server does not copy: through here
    another etag        its size              size      copied
    another etag        --                    digest    copied, if both stores keep equal checksums;
                                                        else through here

After a few refusals, or reports of copies that were not made, the server is not asked any more.

Small copies are looked up by pages of the listing. For a large copy, a request of its own adds
little time. A server that reads an object to say its etag can do so for several at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from larder.copy.allowance import CopyLimits
from larder.copy.object import WHOLE_BYTES
from larder.copy.proof import Content, CopiedObject, crc32c_of, known_md5
from larder.errors import LarderError, NotFoundError, PreconditionError, RetryableError
from larder.store.base import ObjectInfo, Store
from larder.store.etags import is_weak

_GROUP_OBJECTS = 1_000
"""A page of a listing."""
_GROUP_SECONDS = 4.0
_MOST_FAULTS = 3
_MOST_UNPROVED = 8


class _ServerCopy(NamedTuple):
    """A copy to check: the object, and the copy as the server described it."""

    info: ObjectInfo
    copy: ObjectInfo


@dataclass(eq=False)
class ServerSide:
    """Copies objects of one batch on the server. May be used by many threads.

    ``stream`` copies an object through this machine. ``attempt`` runs a step, and records if the
    object fails.
    """

    source: Store
    target: Store
    prefix: str
    limits: CopyLimits
    done: Callable[[ObjectInfo, CopiedObject], None]
    stream: Callable[[ObjectInfo], None]
    attempt: Callable[[ObjectInfo, Callable[[], None]], object]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[_ServerCopy] = []
        self._scattered: list[_ServerCopy] = []
        self._since = time.monotonic()
        self._faults = self._unproved = 0
        self._proved = False
        one, other = self.source.features.place, self.target.features.place
        self.possible = bool(
            one and other and (one.provider, one.server) == (other.provider, other.server)
        )

    def in_parts(self, info: ObjectInfo) -> bool:
        """Whether the server has to copy an object in parts: S3, above a size."""
        place = self.target.features.place
        # Nothing could make sure that the server copies the object with a weak etag.
        large = not is_weak(info.etag) and info.size_bytes > self.limits.server_copy_bytes
        return large and place is not None and place.provider == "s3"

    def copy(self, info: ObjectInfo) -> None:
        """Have the server copy an object; copy it through this machine if it does not."""
        if not self.possible or not info.etag or is_weak(info.etag):  # no condition is possible
            return self.stream(info)
        try:
            copy = self.target.copy_from(self.source, info, self.prefix + info.key)
        except (PreconditionError, RetryableError):
            raise
        except LarderError:  # copying through this machine finds the cause
            copy = None
        if copy is None:
            self.fault()
            return self.stream(info)
        if copy.etag == info.etag or self.limits.verify == "size":
            made = _ServerCopy(info, copy)
            if info.size_bytes > WHOLE_BYTES:
                return self._check_one(made)
            with self._lock:
                self._made.append(made)
            return None
        checked = self._by_checksum(info, copy)
        if checked is None:
            with self._lock:
                self._unproved += 1
                self.possible &= self._proved or self._unproved < _MOST_UNPROVED
            return self.stream(info)
        self._proved = True
        return self.done(info, checked)

    def _by_checksum(self, info: ObjectInfo, copy: ObjectInfo) -> CopiedObject | None:
        """Return the copy if both stores keep the same checksum of the whole content."""
        written, original = self.target.head(copy.key), self.source.head(info.key)
        same = written.size_bytes == info.size_bytes
        changed = bool(info.etag) and original.etag != info.etag
        check = Content(kept=original.checksum).check(written, etag_is_md5=False)
        if check is None or not same or changed:
            return None
        return CopiedObject.of(info, written, crc32c_of(written.checksum), check)

    def due_checks(self) -> Iterator[Callable[[], None]]:
        """Yield steps that check copies, if enough copies wait, or some wait for long enough."""
        with self._lock:
            due = time.monotonic() - self._since > _GROUP_SECONDS
            if len(self._made) < _GROUP_OBJECTS and not (due and self._made):
                return
        yield from self.checks()

    def checks(self) -> Iterator[Callable[[], None]]:
        with self._lock:
            made, self._made = self._made, []
            scattered, self._scattered = self._scattered, []
            self._since = time.monotonic()
        made.sort(key=lambda one: one.copy.key.encode())
        for start in range(0, len(made), _GROUP_OBJECTS):
            yield partial(self._check_group, made[start : start + _GROUP_OBJECTS])
        for one in scattered:
            yield partial(self._check_one, one)

    def _check_group(self, made: list[_ServerCopy]) -> None:
        """Find copies in a listing, if that takes few requests; others are checked singly later."""
        first, last = made[0].copy.key, made[-1].copy.key
        waiting = {one.copy.key: one for one in made[1:]}
        self._check_one(made[0])
        prefix = os.path.commonprefix((first, last))  # noqa: RUF071 - of characters, not of folders
        pages = self.target.list(prefix, start_after=first)
        for page in islice(pages, 2 + len(made) // _GROUP_OBJECTS):
            for listed in page:
                one = waiting.pop(listed.key, None)
                if one is not None:
                    self._verdict(one, listed)
            if page[-1].key.encode() >= last.encode():
                break
        with self._lock:
            self._scattered += waiting.values()

    def _check_one(self, one: _ServerCopy) -> None:
        def check() -> None:
            try:
                copy = self.target.head(one.copy.key)
            except NotFoundError:
                copy = None
            self._verdict(one, copy)

        self.attempt(one.info, check)

    def _verdict(self, one: _ServerCopy, current: ObjectInfo | None) -> None:
        info, copy = one
        if current and (current.size_bytes, current.etag) == (info.size_bytes, copy.etag):
            check = Content(known_md5(self.source, info.etag)).check(current, etag_is_md5=True)
            check = check or ("etag" if copy.etag == info.etag else "size")
            self.done(info, CopiedObject.of(info, current, None, check))
            return
        self.fault()
        self.attempt(info, partial(self.stream, info))

    def fault(self) -> None:
        """Note that the server refused to copy, or did not make a copy that it reported."""
        with self._lock:
            self._faults += 1
            self.possible &= self._faults < _MOST_FAULTS
