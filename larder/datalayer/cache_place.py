"""Locations of a cache: STORAGE/ID/VERSION/, and this machine's copy.

The storage is the argument, ``LARDER_CACHE``, or the section of the experiment's config with the
field names of Determined's data layer. Training and validation data share an id and a version;
``_train`` or ``_val`` is appended to the version.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from larder.config.urls import check_url, parse_url
from larder.datalayer.copies import limit_of
from larder.disk import is_on_network
from larder.errors import ConfigError
from larder.readers.determined import SECTION, storage_section
from larder.readers.schedule import choice, invalid
from larder.store import open_store
from larder.store.base import Store
from larder.store.download import cache_directory
from larder.units import suggest

VARIABLE: Final = "LARDER_CACHE"
"""Environment variable that names the storage."""

_LOCAL: Final = "yogadl_local_cache"
_DEFAULT: Final = "~/data/determined"
"""The default path of Determined's data layer."""

_TYPES: Final = {"shared_fs": "", "s3": "s3", "gcs": "gs"}
_SECRETS: Final = ("access_key", "secret_key")
_FIELDS: Final = (
    *("type", "host_storage_path", "container_storage_path", "bucket", "bucket_directory_path"),
    *("endpoint_url", "local_cache_host_path", "local_cache_container_path", "cache_bytes"),
    *_SECRETS,
)

_MOST_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class CachePlace:
    """The location of a cache: ``name`` is ``ID/VERSION``, below the ``root`` of a storage.

    ``copies`` is the directory for copies of all caches, which have at most ``limit_bytes``.
    """

    name: str
    root: str
    copies: Path
    limit_bytes: int | None = None
    endpoint: str | None = None

    @property
    def local(self) -> Path:
        return self.copies / self.name

    @property
    def url(self) -> str:
        return f"{self.root.rstrip('/')}/{self.name}".rstrip("/")

    def store(self) -> Store:
        """Open a store that is limited to this cache."""
        return open_store(self.url, endpoint=self.endpoint)

    @property
    def directory(self) -> Path | None:
        url = parse_url(self.url)
        return Path(url.rest) if url.is_directory else None

    @property
    def folder(self) -> Path | None:
        """The directory, unless it is on a network file system: its files are read from copies."""
        directory = self.directory
        return None if directory is None or is_on_network(directory) else directory


def place_of(
    dataset_id: Any,
    version: Any,
    suffix: str,
    storage: str | Path | None,
    cache_dir: Any = None,
    cache_bytes: Any = None,
) -> CachePlace:
    """Return the place of a cache; ``config.invalid_value`` for an unusable name of a folder."""
    name = f"{_checked(dataset_id, 'dataset_id')}/{_checked(version, 'dataset_version')}{suffix}"
    return replace(storage_of(storage, cache_dir, cache_bytes), name=name)


def storage_of(
    storage: str | Path | None, cache_dir: Any = None, cache_bytes: Any = None
) -> CachePlace:
    root = str(storage) if storage is not None else os.environ.get(VARIABLE, "")
    check_url(root or _DEFAULT, where="STORAGE" if storage is not None else VARIABLE)
    section = {} if root else storage_section()
    local = cache_dir or section.get("local_cache_container_path")
    if section:
        root = _root_of(section)
    url = parse_url(root or _DEFAULT)
    if url.is_directory:
        root = str(Path(url.rest).expanduser().absolute())
    copies = cache_directory(local) / _LOCAL
    limit = limit_of(section.get("cache_bytes") if cache_bytes is None else cache_bytes)
    return CachePlace("", root, copies, limit, section.get("endpoint_url"))


def _checked(value: Any, where: str) -> str:
    if not isinstance(value, str):
        hint = f"write it as a string, such as {str(value)!r}"
        raise invalid(f"{value!r} is no string", where, hint)
    faults = {
        "it is empty": not value.strip(),
        "it begins or ends with a space": value != value.strip(),
        "it has a slash": "/" in value or "\\" in value,
        "it begins with a dot": value.startswith("."),
        "it has a character that cannot be printed": not value.isprintable(),
        "its Unicode form is not NFC": unicodedata.normalize("NFC", value) != value,
        f"it has more than {_MOST_BYTES} bytes": len(value.encode(errors="replace")) > _MOST_BYTES,
    }
    for fault, is_so in faults.items():
        if is_so:
            hint = "it is the name of a folder: use letters, digits, - and _"
            raise invalid(f"{value[:_MOST_BYTES]!r}: {fault}", where, hint)
    return value


def _root_of(section: Mapping[str, Any]) -> str:
    kind = section.get("type")
    choice(f"{SECTION}.type", kind, tuple(_TYPES))
    assert isinstance(kind, str), "it is one of them"
    for name, value in section.items():
        if name in _SECRETS and value is not None:
            message = "an experiment's config is shown to everybody who can see the experiment"
            hint = "remove it, and give the containers a role, or AWS variables"
            raise ConfigError("config.secret", message, where=f"{SECTION}.{name}", hint=hint)
        if name not in _FIELDS:
            where, hint = f"{SECTION}.{name}", suggest(name, _FIELDS, "fields")
            raise ConfigError("config.unknown_key", "unknown key", where=where, hint=hint)
        if not isinstance(value, str | None) and name != "cache_bytes":
            raise invalid(f"{value!r} is no string", f"{SECTION}.{name}")
    if kind == "shared_fs":
        return section.get("container_storage_path") or _DEFAULT
    if not section.get("bucket"):
        raise invalid("there is no bucket", f"{SECTION}.bucket", "name the bucket")
    folder = (section.get("bucket_directory_path") or "").strip("/")
    return f"{_TYPES[kind]}://{section['bucket']}/{folder}".rstrip("/")
