"""Access to the files of a version: in its store, or downloaded to a directory.

An access can be pickled; a store, with its connections, cannot. A download serves all processes of
the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from larder.disk import check_names, disk_errors, read_file, remove_abandoned_below, write_file
from larder.errors import ConfigError, FatalError, LarderError
from larder.manifest.sealed import StoredFile
from larder.store import open_store
from larder.store.base import Store
from larder.store.download import download, is_downloaded, locked, path_below
from larder.store.own_files import listed, read_optional
from larder.versions import layout
from larder.versions.documents import VersionDocument


@dataclass(frozen=True, slots=True)
class DatasetAccess:
    """Access to a dataset's root; ``cache_dir`` is the directory for its downloaded files."""

    root: str
    cache_dir: Path
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None

    def store(self) -> Store:
        return open_store(
            self.root, endpoint=self.endpoint, region=self.region, profile=self.profile
        )

    @contextmanager
    def cleaned_errors(self, version: str) -> Iterator[None]:
        """Raise ``version.cleaned`` for an error if the version is gone and another one exists."""
        try:
            yield
        except LarderError as error:
            if not self._is_cleaned(version):
                raise
            message = "the version was deleted after it was opened, as by larder clean"
            hint = "open another version; a tag or larder lease keeps one"
            where = f"{self.root}@{version}"
            raise FatalError("version.cleaned", message, where=where, hint=hint) from error

    def _is_cleaned(self, version: str) -> bool:
        with suppress(LarderError):
            store = self.store()
            is_gone = read_optional(store, layout.version_key(version)) is None
            return is_gone and next(listed(store, "versions/"), None) is not None
        return False


_THREADS = 8

_CLASSES = "classes.json"
_MARK = "larder.json"
"""Names the version in the directory."""

_LOCK = ".larder.lock"


def download_version(
    store: Store,
    version: VersionDocument,
    shards: Mapping[str, Iterable[StoredFile]],
    directory: Path,
) -> None:
    """Download shards, given by split, and the numbers of the classes."""
    check_names(directory, shards)
    files = {f"{split}/{file.name}": file for split, each in shards.items() for file in each}
    for file in version.files_of("classes"):
        files[_CLASSES] = file
    if _is_marked(version, directory) and all(
        is_downloaded(directory / path, file.bytes) for path, file in files.items()
    ):  # no lock: the directory may be another user's
        return
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / _LOCK):
        if not _is_marked(version, directory):
            write_file(directory / _MARK, _mark(version))
        remove_abandoned_below(directory, [directory / split for split in shards])
        # An error cancels the downloads that have not begun.
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="larder-download") as threads:
            list(threads.map(partial(_download, store, directory), files, files.values()))


def _download(store: Store, directory: Path, path: str, file: StoredFile) -> None:
    download(store, file.path, path_below(directory, path), file.bytes, file.sha256, threads=1)


def _mark(version: VersionDocument) -> bytes:
    mark = {"dataset": version.dataset, "version": version.id, "digest": version.digest}
    return json.dumps(mark, indent=1).encode() + b"\n"


def _is_marked(version: VersionDocument, directory: Path) -> bool:
    """Whether a directory is marked with this version; refuse the mark of another version."""
    path = directory / _MARK
    with disk_errors(path, reading=True):
        present = read_file(path) if path.exists() else None
    if present not in (None, _mark(version)):
        message = "the directory has another version, or another dataset"
        hint = "name another directory, or delete this one"
        raise ConfigError("config.path", message, where=str(path), hint=hint)
    return present is not None
