"""Jobs, batches and findings of a verification, and the reading of one file, even if damaged.

The values are small enough to be sent to a task on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.shape import FormatUse
from larder.errors import DamageError, LarderError, NotFoundError, ObjectError, shown
from larder.jobs.results import Totals
from larder.manifest.sealed import StoredFile
from larder.segments.stores import storage_of
from larder.store.base import Readable, Store
from larder.store.own_files import read_digest, read_document
from larder.units import format_count
from larder.versions.documents import CacheFile, VersionDocument
from larder.versions.index import Shard

SHOWN_UNUSED = 20
"""Maximum number of unused files that are named."""

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
MISSING = "the file is missing"


class VerifyJob(NamedTuple):
    """A verification of a version; ``version`` is an ID or a tag.

    ``sample_percent`` of the shards and cache files, chosen by ``seed``, are read; None reads all.
    ``is_latest``: no tag ``latest`` names another version, as an inspection has found.
    """

    dataset: Dataset
    cluster: Cluster
    version: str
    sample_percent: float | None = None
    seed: int = 0
    by_id: bool = False
    is_latest: bool = False


@dataclass(frozen=True, slots=True)
class VerifyBatch:
    """Files of one segment that a task reads: some shards, or a cache file.

    ``format`` is None if segment.json is damaged, ``index`` and ``sources`` if these files are.
    """

    segment: str
    format: FormatUse | None
    index: StoredFile | None
    sources: StoredFile | None
    classes: int
    shards: tuple[Shard, ...] = ()
    cache: CacheFile | None = None

    @property
    def name(self) -> str:
        """The first file, for people."""
        return self.cache.path if self.cache else self.shards[0].name

    @property
    def files(self) -> int:
        return len(self.published)

    @property
    def rows(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.published)

    @property
    def singles(self) -> list[VerifyBatch]:
        """The cache file, or each shard, as a batch of its own."""
        return [self] if self.cache else [replace(self, shards=(each,)) for each in self.shards]

    @property
    def published(self) -> list[StoredFile]:
        if self.cache:
            return [StoredFile(self.cache.path, self.cache.bytes, self.cache.sha256, "cache")]
        return [file for shard in self.shards for file in shard.published]


class Unused(NamedTuple):
    """Files below a version's prefixes that Larder wrote and nothing names; the first by key."""

    files: int = 0
    bytes: int = 0
    keys: tuple[str, ...] = ()

    def plus(self, key: str, size_bytes: int) -> Unused:
        keys = (*self.keys, key)[:SHOWN_UNUSED]
        return Unused(self.files + 1, self.bytes + size_bytes, keys)


class Inspected(NamedTuple):
    """Content of the documents and manifests of a version.

    ``version`` is None if its document is damaged or lost. ``id`` is empty if the tag that names
    the version is. ``files`` and ``bytes`` are of all shards and caches, also of files that no
    batch reads.
    """

    version: VersionDocument | None
    id: str
    batches: tuple[VerifyBatch, ...] = ()
    files: int = 0
    bytes: int = 0
    unused: Unused = Unused()
    is_latest: bool = False


def open_verified(job: VerifyJob) -> Store:
    return storage_of(job.dataset, job.cluster)


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
