"""The place of copies: their origin, and the keys of their record, receipts and uploads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from larder.manifest.digest import sha256_hex
from larder.store.base import Store
from larder.store.own_files import OWN_PREFIX

if TYPE_CHECKING:
    from larder.config.models.locations import Location


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a copy: URL and server, which is empty for the provider itself.

    Both are empty for the mirror of a dataset, whose record outlives the URL of its source.
    """

    url: str = ""
    endpoint: str = ""

    @staticmethod
    def of(source: Location, store: Store) -> Origin:
        """Return the origin of a source, under its store's URL however it was written."""
        return Origin(store.url, (source.access.endpoint or "").rstrip("/"))

    @property
    def name(self) -> str:
        """A name for keys: 16 hex digits."""
        return sha256_hex(f"{self.endpoint} {self.url}".encode())[:16]


class CopyPlace(NamedTuple):
    """Place of the copies from an origin, and of their record, below a root.

    ``objects`` precedes the keys of the copies, ``files`` the keys of the record's files. Each is
    empty or ends in a slash.
    """

    origin: Origin
    objects: str = ""
    files: str = f"{OWN_PREFIX}copy/"

    @property
    def document(self) -> str:
        """Key of copy.json."""
        return f"{self.files}copy.json"

    @property
    def receipts(self) -> str:
        return f"{self.files}receipts/{self.origin.name}/"

    @property
    def uploads(self) -> str:
        return f"{self.files}uploads/"

    @property
    def work(self) -> str:
        """Prefix of files that exist only while a copy runs."""
        return f"{self.files}work/"

    def file(self, role: str, sha256: str) -> str:
        """Return the key of a manifest. Its bytes may differ, so its name contains its digest."""
        return f"{self.files}{role}-{sha256[:16]}.parquet"
