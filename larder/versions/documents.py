"""The JSON documents of a dataset: segment.json, cache.json, version.json and tags.

They are sealed (`larder.manifest.sealed`). They contain no times and no absolute URLs, so that the
same inputs and history give the same bytes everywhere. Paths are relative to the dataset's root.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, TypeVar

from larder.config.patterns import count_braces
from larder.config.shape import DEFAULTS, DecoderUse, FormatOptions, FormatUse, ImageOptions
from larder.errors import DamageError
from larder.manifest.sealed import SPARSE, StoredFile, read_sealed
from larder.names import PATH, Digest, FilePath, HexId, PlainName, ShardPattern, SplitName, TextRule
from larder.versions import layout

SEGMENT_FORMAT = "larder-segment-2"
CACHE_FORMAT = "larder-segment-cache-1"
VERSION_FORMAT = "larder-version-2"

ROLES = ("rows", "sources", "skipped", "objects", "omitted", "list", "classes", "readers")
"""The roles of a version's files.

``rows`` are the indexes of its segments, ``sources`` the objects that samples were packed from, and
``skipped`` the bad samples left out. ``objects`` are the objects in the source, and ``omitted`` the
rows that the version omits. ``list`` is a split's shards as a list, ``classes`` the number of each
class, and ``readers`` a split's indexes for other readers.
"""


_ANY_IMAGES = ImageOptions()

CacheKind = Annotated[str, TextRule("a kind of cache", "encoded|decoded|built")]
Validated = Annotated[str, TextRule("how images are checked", "none|header|decode")]


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """One split of a version.

    Attributes:
        shards: Number of shards with samples; others are not listed.
        bytes: Total size of these shards.
        patterns: Their paths below the dataset's root, in order: each with one numeric range in
            braces, or a plain path.
        omitted: Samples in these shards that the version omits. A reader that opens the shards by
            their names reads these samples too.
    """

    samples: int
    shards: int
    bytes: int
    patterns: tuple[ShardPattern, ...]
    omitted: int = 0

    def check(self) -> None:
        if sum(map(count_braces, self.patterns)) != self.shards:
            raise ValueError("the patterns of a split have another number of shards than it has")
        if self.shards > self.samples:
            raise ValueError(f"{self.samples:,} samples are in {self.shards:,} shards")


@dataclass(frozen=True, slots=True)
class Shape:
    """The options that shape all shards of a segment.

    Attributes:
        format_version: The version of the format that wrote the shards.
        library: The library, with its release, on which the bytes of the format depend.
        split_bytes: By split, the size of its shards where ``shards.count_min`` made it smaller.
        options: Options of the format; the document leaves out defaults.
        images: Which images are allowed, and how they are stored; the document leaves out defaults.
    """

    format: str
    format_version: int
    bytes: int
    split_bytes: Mapping[SplitName, int]
    shuffle_seed: int | None
    options: FormatOptions = field(default=DEFAULTS, metadata=SPARSE)
    samples_per_shard: int | None = field(default=None, metadata=SPARSE)
    images: ImageOptions = field(default=_ANY_IMAGES, metadata=SPARSE)
    library: str = field(default="", metadata=SPARSE)

    @property
    def use(self) -> FormatUse:
        """The format of the shards, to read or write them."""
        return FormatUse(self.format, self.options, self.format_version)


@dataclass(frozen=True, slots=True)
class SegmentSplit:
    """One split of a segment.

    Attributes:
        first_row: Row of its first sample in the segment's index.
        first_shard: Number of its first planned shard.
        end_shard: Number after its last planned shard, from which the next segment continues.
    """

    samples: int
    shards: int
    bytes: int
    first_row: int
    first_shard: int
    end_shard: int


@dataclass(frozen=True, slots=True)
class SegmentDocument:
    """segment.json: an immutable, complete set of shards and their indexes.

    Attributes:
        validate: How its images were checked.
        files: Its index, ``rows``; ``sources``, which growth compares with and a repair makes
            shards from; if samples were left out, ``skipped``.
        skipped: Number of samples that were left out because they are bad.
    """

    dataset: PlainName
    id: HexId
    shape: Shape
    validate: Validated
    splits: Mapping[SplitName, SegmentSplit]
    files: tuple[StoredFile, ...]
    skipped: int = 0
    format: str = SEGMENT_FORMAT

    @property
    def key(self) -> str:
        return layout.segment_key(self.id)

    def file(self, role: str) -> StoredFile:
        """Return the file with a role; ``damage.manifest`` if there is none."""
        return _file(self.files, role, "segment.json")

    @property
    def samples(self) -> int:
        return sum(split.samples for split in self.splits.values())

    def check(self) -> None:
        if not self.splits:
            raise ValueError("it has no splits")
        _check_places(self.files, [layout.segment_prefix(self.id)])
        if any(each.first_row + each.samples > self.samples for each in self.splits.values()):
            raise ValueError("a split ends after the last sample")


@dataclass(frozen=True, slots=True)
class CacheFile:
    """The LMDB file of one split of a segment.

    Attributes:
        sha256: Digest of the LMDB file; depends on the page size of the machine that built it.
        digest: Digest of the schema and the ordered records; depends only on the content.
        records: Number of records: one for each sample of the segment, in the order of its rows.
        fields: By name, the type of each field and the number of its dimensions, such as
            ``uint8[3]``. They are the same in all files that are read as one.
    """

    path: FilePath
    bytes: int
    sha256: Digest
    digest: Digest
    records: int
    segment: HexId
    split: SplitName
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheDocument:
    """cache.json: a complete cache of a segment; ``kind`` is ``encoded``, ``decoded`` or ``built``.

    ``decoders`` decode the parts that are not images; the document leaves out an empty list.
    """

    dataset: PlainName
    segment: HexId
    id: HexId
    kind: CacheKind
    files: Mapping[SplitName, CacheFile]
    format: str = CACHE_FORMAT
    decoders: tuple[DecoderUse, ...] = field(default=(), metadata=SPARSE)

    @property
    def key(self) -> str:
        return layout.cache_key(self.segment, self.id)

    def check(self) -> None:
        _check_places(self.files.values(), [layout.cache_prefix(self.segment, self.id)])


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """The cache of a version: the files of each split, in the order of its segments.

    ``kind`` and ``decoders`` are as in `CacheDocument`. The files have the records of all samples
    of their segments, including samples that the version omits.
    """

    kind: CacheKind
    splits: Mapping[SplitName, tuple[CacheFile, ...]]
    decoders: tuple[DecoderUse, ...] = field(default=(), metadata=SPARSE)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for files in self.splits.values() for file in files)


@dataclass(frozen=True, slots=True)
class OmittedRows:
    """Rows of one split of a segment that a version omits; see `larder.versions.omitted`.

    Attributes:
        ranges: The rows as ranges ``(start, stop)``; empty if they are in the version's file with
            the role ``omitted``.
        first: Position of the first range in that file.
        stop: Position after the last range in that file.
    """

    count: int
    ranges: tuple[tuple[int, int], ...] = ()
    first: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """A segment as part of a version, less the samples that the version omits.

    Attributes:
        omitted: Omitted rows by split, for the splits that have some.
        cache: ID of its cache; None if the version has no cache.
    """

    id: HexId
    omitted: Mapping[SplitName, OmittedRows] = field(default_factory=dict)
    cache: HexId | None = None


@dataclass(frozen=True, slots=True)
class VersionDocument:
    """version.json: the published, immutable state of a dataset that training names.

    Attributes:
        id: 32 hex digits; see `larder.versions.identity.version_id`.
        inputs: The inputs digest of the run that published it.
        segments: In the order in which they are read.
        classes: In the order of their numbers; empty without labels.
        files: The manifests of its segments, in their order, and its own.
        skipped: Number of keys and samples left out because the dataset file says ``skip``.
        split_rule: The rule of splits that depend on all samples, as canonical JSON; see
            `larder.versions.identity.split_rule`. Empty, and not in the file, for other splits.
    """

    dataset: PlainName
    id: HexId
    digest: Digest
    inputs: Digest
    segments: tuple[SegmentUse, ...]
    splits: Mapping[SplitName, SplitFacts]
    classes: tuple[str, ...]
    files: tuple[StoredFile, ...]
    cache: CacheFacts | None
    skipped: int = 0
    format: str = VERSION_FORMAT
    split_rule: str = field(default="", metadata=SPARSE)

    @property
    def key(self) -> str:
        return layout.version_key(self.id)

    def file(self, role: str) -> StoredFile:
        """Return the only file with a role; ``damage.manifest`` if there is none."""
        return _file(self.files, role, "version.json")

    def files_of(self, role: str) -> tuple[StoredFile, ...]:
        return tuple(entry for entry in self.files if entry.role == role)

    def cache_files(self, split: str) -> tuple[CacheFile, ...]:
        """Return the cache files of a split; if there are none, readers read its shards."""
        return self.cache.splits.get(split, ()) if self.cache else ()

    @property
    def omitted(self) -> int:
        """Number of omitted rows, over all segments."""
        return sum(rows.count for use in self.segments for rows in use.omitted.values())

    def check(self) -> None:
        if not self.splits:
            raise ValueError("it has no splits")
        segments = [layout.segment_prefix(use.id) for use in self.segments]
        if len(set(segments)) < len(segments):
            raise ValueError("it has a segment twice")
        _check_places(self.files, [layout.version_prefix(self.id), *segments])
        caches = self.cache.splits if self.cache else {}
        if not caches.keys() <= self.splits.keys():
            raise ValueError("its cache has other splits")
        _check_places(chain.from_iterable(caches.values()), segments)
        for split, facts in self.splits.items():
            folders = tuple(layout.shard_key(use.id, split, "") for use in self.segments)
            if not all(pattern.startswith(folders) for pattern in facts.patterns):
                raise ValueError(f"splits.{split}: patterns of no segment of the version")


def _check_places(files: Iterable[StoredFile | CacheFile], prefixes: Iterable[str]) -> None:
    places = tuple(prefixes)
    for file in files:
        if not (file.path.startswith(places) and PATH.allows(file.path)):
            raise ValueError(f"{file.path} is not among the files of this document")


def _file(files: Iterable[StoredFile], role: str, where: str) -> StoredFile:
    for entry in files:
        if entry.role == role:
            return entry
    raise DamageError("damage.manifest", f"no file has the role {role!r}", where=where)


Document = TypeVar("Document", SegmentDocument, CacheDocument, VersionDocument)

FORMATS: dict[type[Any], str] = {
    SegmentDocument: SEGMENT_FORMAT,
    CacheDocument: CACHE_FORMAT,
    VersionDocument: VERSION_FORMAT,
}
"""The ``format`` of each kind of document."""


def parse_document(kind: type[Document], data: bytes, where: str) -> Document:
    """Read segment.json, cache.json or version.json; ``damage.digest`` or ``damage.manifest``."""
    return read_sealed(kind, data, where, FORMATS[kind])
