"""Records of large objects in progress, so that a later run continues inside them."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from larder.bounds import parse_bounded
from larder.errors import DamageError, LarderError, NotFoundError
from larder.store.base import ObjectInfo, Store, UploadedPart
from larder.store.own_files import read_document

RESUME_BYTES = 1_000_000_000
"""Size above which uploads are continued; a smaller upload loses little."""

UPLOAD_ABANDONED_SECONDS = 24 * 3600.0
"""Age above which an upload, or its record, is of a killed run."""

_RECORD_BYTES = 192_000_000
_RECORD_SECONDS = 8.0


class UploadRecord(NamedTuple):
    """An upload, and the etags of its parts by their numbers."""

    upload: str
    etags: Mapping[int, str]


class UploadRecords:
    """The records of one dataset or copy. May be used by many threads.

    A record proves nothing, because any process with access to the store can write one. So it has
    no checksums, and a continued object is read back.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._lock = threading.Lock()
        self._since: dict[str, tuple[float, int]] = {}

    def find(self, info: ObjectInfo, key: str, part_bytes: int) -> UploadRecord | None:
        """Find the record of an object in this state."""
        with suppress(LarderError, ValueError, KeyError, TypeError, RecursionError):
            record = parse_bounded(read_document(self._store, self._key(key)))
            same = [key, info.key, info.etag, info.size_bytes, part_bytes]
            if record["object"] == same and isinstance(record["upload"], str):
                return UploadRecord(record["upload"], dict(record["parts"]))
        return None

    def due(self, key: str, size_bytes: int) -> bool:
        """Whether enough bytes were sent, or enough time has passed, to write a record."""
        with self._lock:
            now = time.monotonic()
            since, sent = self._since.get(key, (now, 0))
            sent += size_bytes
            is_due = sent >= _RECORD_BYTES or now - since >= _RECORD_SECONDS
            self._since[key] = (now, 0) if is_due else (since, sent)
            return is_due

    def save(
        self,
        info: ObjectInfo,
        key: str,
        part_bytes: int,
        upload: str,
        parts: Iterable[UploadedPart],
    ) -> None:
        content = {
            "object": [key, info.key, info.etag, info.size_bytes, part_bytes],
            "upload": upload,
            "parts": [[part.number, part.etag] for part in parts],
        }
        self._store.put(self._key(key), json.dumps(content).encode())

    def remove(self, key: str) -> None:
        with self._lock:
            recorded = self._since.pop(key, None) is not None
        if recorded:
            self._store.delete(self._key(key))

    def abort_unrecorded(self, running_seconds: Callable[[], float | None]) -> None:
        """Abort uploads that no record continues, and that no run in progress has begun.

        They were begun more than a day ago, and more than a day before the first run in progress.
        The store must belong to Larder alone. Uploads that the store refuses to abort stay, and all
        of them if a record or a lease cannot be read.
        """
        if not self._store.features.uploads:
            return
        with suppress(LarderError):
            kept = {str(record["upload"]) for _, record in self._records() if record}
            seconds = UPLOAD_ABANDONED_SECONDS + (running_seconds() or 0)
            self._store.abort_uploads(seconds, kept)

    def abort_recorded(self, now_us: int) -> None:
        """Abort the uploads of records that no run has touched for a day.

        Call this at the end of a run, which has continued its uploads, or while no run has a lease.
        A run in progress writes its records anew every few seconds.
        """
        before_us = now_us - UPLOAD_ABANDONED_SECONDS * 1e6
        with suppress(LarderError):
            for info, record in self._records():
                if info.modified_us < before_us:
                    with suppress(LarderError, LookupError, TypeError, ValueError):
                        key = record["object"][0]
                        upload = self._store.begin_upload(key, resume=record["upload"])
                        if upload is not None and info.key == self._key(key):
                            upload.abort()
                    self._store.delete(info.key)

    def _records(self) -> Iterator[tuple[ObjectInfo, dict[str, Any]]]:
        """Yield the records, a damaged one as empty.

        Fails if the store does not give one, as its upload may be in progress.
        """
        for info in [info for page in self._store.list(self._prefix) for info in page]:
            record = None
            with suppress(DamageError, NotFoundError, ValueError, RecursionError):
                record = parse_bounded(read_document(self._store, info.key))
            yield info, record if isinstance(record, dict) and "upload" in record else {}

    def _key(self, key: str) -> str:
        return f"{self._prefix}{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
