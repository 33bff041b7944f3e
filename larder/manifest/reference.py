"""References to manifests, which is how they are passed between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from larder.versions.documents import FileFacts


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest in a store: key below the root, digest, bytes, rows; -1 if they are not known."""

    key: str
    sha256: str
    bytes: int
    rows: int

    @classmethod
    def of(cls, file: FileFacts) -> ManifestRef:
        """A published manifest."""
        return cls(file.path, file.sha256, file.bytes, rows=-1)
