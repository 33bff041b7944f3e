"""Findings of a verification, and the reading of one file, even of a damaged file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from larder.errors import DamageError, LarderError, NotFoundError, ObjectError, shown
from larder.jobs.results import Totals
from larder.manifest.sealed import StoredFile
from larder.store.base import Readable, Store
from larder.store.own_files import read_digest, read_document
from larder.units import format_count
from larder.versions.documents import CacheFile

SHOWN_SAMPLES = 10
"""Maximum number of samples that a finding names."""

Role = Literal["tag", "document", "manifest", "shard", "index", "cache", "content", "foreign"]
"""Subject of a finding.

- ``tag``; ``document``: version.json, segment.json or cache.json; ``manifest``: a file that one of
  these names.
- ``shard``: a file of a shard; ``index``: its index for another reader; ``cache``: a cache file.
- ``content``: figures that do not agree although every file is as it was published.
- ``foreign``: a file that nothing names.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect of a file below the dataset's root.

    ``samples`` are the first keys of the ``count`` affected samples.
    """

    path: str
    role: Role
    code: str
    message: str
    samples: tuple[str, ...] = ()
    count: int = 0

    @property
    def line(self) -> str:
        concerned = f"; {_concerned(self.samples, self.count)}" if self.count else ""
        return f"{shown(self.path)}: {shown(self.message)}{concerned}"


def _concerned(samples: Sequence[str], count: int) -> str:
    keys = ", ".join(map(shown, samples[:3]))
    more = f" and {count - min(3, len(samples)):,} more" if count > min(3, len(samples)) else ""
    names = f": {keys}{more}" if keys else ""
    return f"{format_count(count, 'sample')} concerned{names}"


@dataclass(frozen=True, slots=True)
class Verified:
    """Findings in some files, and the totals of files read."""

    findings: tuple[Finding, ...] = ()
    read: Totals = field(default_factory=Totals)


class DamagedError(DamageError):
    """Error for a version that is not as it was published; ``document`` is the verification's."""

    def __init__(
        self, first: Finding, others: int, hint: str, document: Mapping[str, object]
    ) -> None:
        more = f" (and {format_count(others, 'more finding')})" if others else ""
        super().__init__(first.code, f"{first.message}{more}", where=first.path, hint=hint)
        self._arguments = first, others, hint, document
        self.document = document

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all arguments, which a task run may send to another process."""
        return (DamagedError, self._arguments)


MISSING = "the file is missing"


def compared(
    store: Readable, file: StoredFile | CacheFile, each: Callable[[Any], object] = len
) -> tuple[str, str]:
    """Read a file once; ``each`` gets every buffer.

    Returns the code and the message of a defect; both are empty for an intact file.
    """
    try:
        size_bytes, sha256 = read_digest(store, file.path, each)
    except NotFoundError:
        return "damage.size", MISSING
    except ObjectError as error:
        if not is_broken(store, error):
            raise
        return "damage.size", f"the file cannot be read completely: {error.message}"
    if size_bytes != file.bytes:
        return "damage.size", f"the file has {size_bytes:,} bytes instead of {file.bytes:,}"
    if sha256 != file.sha256:
        return "damage.digest", "the bytes do not match the digest"
    return "", ""


def has_content(store: Readable, file: StoredFile) -> bool:
    return not compared(store, file)[0]


def readable(root: Store, path: str) -> bytes | None:
    """Read a document; None if it is missing, too long, or cannot be read from its disk."""
    try:
        return read_document(root, path)
    except DamageError:
        return None
    except ObjectError as error:
        if not isinstance(error, NotFoundError) and not is_broken(root, error):
            raise
        return None


def is_broken(store: Readable, error: LarderError) -> bool:
    """Whether one file cannot be read, as on a bad sector, or is shorter than stated.

    In a bucket, a file that cannot be read means that access to it is refused.
    """
    if error.code == "object.unreadable":
        return bool(store.features.local_path)
    return error.code == "object.truncated"
