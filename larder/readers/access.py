"""Access to a version that can be pickled; a store, with its connections, cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from larder.errors import FatalError, LarderError
from larder.store import open_store
from larder.store.base import Store
from larder.store.own_files import listed, read_optional
from larder.versions import layout


@dataclass(frozen=True, slots=True)
class DatasetAccess:
    """Access to a dataset's root.

    Attributes:
        cache_dir: Directory for downloaded files of the version on this machine.
    """

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
