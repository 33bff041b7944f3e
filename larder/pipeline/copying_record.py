"""The record of a copy: what is below ``STORAGE/_larder/copy/``, and its document.

::

    copy.json                  the last write: the source, the manifest, the failures
    manifest-SHA.parquet       every verified copy, and how it was verified
    failures-SHA.parquet       the objects that could not be copied
    pruned-SHA.parquet         what a prune was to delete
    receipts/SOURCE/           receipts of runs that have not ended; see `copy_receipts`
    uploads/                   large objects in progress
    work/                      the objects that a run copies, the failures of its batches

A storage has one record, of one source. A copy from another source replaces it: what the other one
copied stays where it is, and nothing of it is pruned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from larder.config.models import Location
from larder.errors import DamageError
from larder.manifest.digest import sha256_hex
from larder.manifest.reference import ManifestRef
from larder.manifest.sealed import from_plain, seal, unseal
from larder.pipeline.copy_receipts import CopyPlace
from larder.source.selection import OWN_PREFIX
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import published_file_errors, read_optional

_PREFIX = f"{OWN_PREFIX}copy/"
COPY_KEY = f"{_PREFIX}copy.json"
UPLOADS_PREFIX = f"{_PREFIX}uploads/"
WORK_PREFIX = f"{_PREFIX}work/"

FORMAT = "larder-copy-1"

_HINT = "delete it: the next copy compares what is there, and writes it again"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a copy comes from: URL and server, which is empty for the provider itself."""

    url: str
    endpoint: str = ""

    @staticmethod
    def of(source: Location, store: Store) -> Origin:
        """The origin of a source, under the URL that its store has however it was written."""
        return Origin(store.url, (source.access.endpoint or "").rstrip("/"))

    @property
    def name(self) -> str:
        """A name for keys: 16 hex digits."""
        return sha256_hex(f"{self.endpoint} {self.url}".encode())[:16]


@dataclass(frozen=True, slots=True)
class CopyDocument:
    """copy.json: what the last copy that ended has left.

    ``manifest`` has every verified copy, also of objects that are not in the source any more, and
    ``failures`` is of schema FAILURES. ``digest`` is sha256 hex over the ordered keys, sizes and
    etags at the source; ``checks`` says how many copies passed which check. ``stopped`` is 1 if the
    copy stopped early because too much failed, so that some objects were not tried; else 0.
    """

    source: Origin
    manifest: ManifestRef
    bytes: int
    digest: str
    checks: Mapping[str, int] = field(default_factory=dict)
    failures: ManifestRef | None = None
    stopped: int = 0
    format: str = FORMAT


def copy_place(origin: Origin) -> CopyPlace:
    """Where copies from a source and their receipts are, below the storage."""
    return CopyPlace(
        "", f"{_PREFIX}receipts/{origin.name}/", f"{WORK_PREFIX}failed-", UPLOADS_PREFIX
    )


def manifest_key(sha256: str) -> str:
    """Key of the manifest of a copy; its bytes may differ, so its name contains its digest."""
    return f"{_PREFIX}manifest-{sha256[:16]}.parquet"


def failures_key(sha256: str) -> str:
    """Key of the list of failures of a copy."""
    return f"{_PREFIX}failures-{sha256[:16]}.parquet"


def pruned_key(sha256: str) -> str:
    """Key of the list of what a prune was to delete."""
    return f"{_PREFIX}pruned-{sha256[:16]}.parquet"


def work_key(name: str, sha256: str) -> str:
    """Key of a file that exists only while a copy runs."""
    return f"{WORK_PREFIX}{name}-{sha256[:16]}.parquet"


def read_record(root: Store) -> CopyDocument | None:
    """copy.json, or None if no copy has ended; a damaged one is refused."""
    data = read_optional(root, COPY_KEY)
    if data is None:
        return None
    where = object_url(root.url, COPY_KEY)
    try:
        plain = unseal(data, where)
    except DamageError as error:
        raise DamageError(error.code, error.message, where=where, hint=_HINT) from None
    if plain.get("format") != FORMAT:
        message = f"format {plain.get('format')!r}; this Larder reads {FORMAT}"
        raise DamageError("damage.manifest", message, where=where, hint="use a newer Larder")
    try:
        return from_plain(CopyDocument, plain)
    except ValueError as error:
        message = f"invalid field: {error}"
        raise DamageError("damage.manifest", message, where=where, hint=_HINT) from None


def put_record(root: Store, document: CopyDocument) -> None:
    with published_file_errors():
        root.put(COPY_KEY, seal(document))
