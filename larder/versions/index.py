"""The index of a segment: seven arrays in one file, for readers that have numpy alone.

===========  ========================================================================
``rows``     one item for each sample, in the order of the segment's rows: `ROWS`
``parts``    one item for each part of a sample: `PARTS`
``keys``     the keys of all samples, one after the other, in UTF-8
``digests``  one item for each file of a shard, and for each index of the shard for
             other readers, in the order of the shards: `digests_dtype`
``names``    the names of the shards, and
``exts``     the extensions of parts, in UTF-8: other arrays refer to them by number
``blocks``   one item for each 4,096 rows, with their checksums: `BLOCKS`
===========  ========================================================================

Each array has one dimension. `larder.versions.arrays` defines the archive: the directory at its end
locates every array, so that a reader requests a block by its ranges.
"""

from __future__ import annotations

import mmap  # noqa: F401 - numpy imports it, but in a thread, while another may fork
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakMethod

import google_crc32c
import numpy as np

from larder.disk import disk_errors
from larder.errors import ConfigError, StoreError
from larder.manifest.sealed import StoredFile
from larder.names import FILE, MAX_NUMBER, NAME, SPLIT
from larder.samples.indexed import IndexedPart, IndexedSample
from larder.store import local_path
from larder.store.base import Store
from larder.store.download import download_once
from larder.store.own_files import once_more
from larder.versions import layout
from larder.versions.arrays import HEADER_BYTES, ArchiveReader, Array
from larder.versions.omitted import Omitted

BLOCK_ROWS = 4_096

NONE = -1
"""The label of a sample without a label, and the offset of a part that is no range of its shard."""

ROWS = np.dtype(
    [
        ("key_end", "<i8"),
        ("shard", "<i4"),
        ("label", "<i4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("part_end", "<i8"),
    ]
)
"""A sample. Its key and parts begin at the ends in the previous row."""

PARTS = np.dtype([("offset", "<i8"), ("length", "<i8"), ("ext", "<i4"), ("crc32c", "<u4")])

KEYS = np.dtype("|u1")

BLOCKS = np.dtype(
    [
        ("key_start", "<i8"),
        ("part_start", "<i8"),
        ("rows_crc32c", "<u4"),
        ("parts_crc32c", "<u4"),
        ("keys_crc32c", "<u4"),
    ]
)
"""A block of rows: the start of its keys and parts, and the CRC-32C of its items in each array."""


def digests_dtype(split_bytes: int, kind_bytes: int, name_bytes: int) -> np.dtype[Any]:
    """Return the type of an item of ``digests``: a file of a shard.

    ``split``, ``kind`` and ``name`` are UTF-8 of at most the given lengths. ``kind`` is the kind of
    index; empty for the shard itself. ``samples`` counts the shard's samples. ``first`` counts the
    samples planned for earlier shards, including bad samples left out. Both are 0 for a shard's
    files after the first.
    """
    lengths = {"split": split_bytes, "kind": kind_bytes, "name": name_bytes}
    texts = [(name, f"S{max(1, length)}") for name, length in lengths.items()]
    numbers = [(name, "<i8") for name in ("bytes", "samples", "first")]
    return np.dtype([*texts, *numbers, ("sha256", "V32")])


_MAX_BYTES = 1 << 62
"""A bound above the size of a block's parts, and low enough that sums do not overflow."""

ITEMS = {"rows": ROWS, "parts": PARTS, "keys": KEYS}
_NAMES = (*ITEMS, "digests", "names", "exts", "blocks")


def checksum(items: Array) -> int:
    crc32c: int = google_crc32c.value(items.tobytes())
    return crc32c


class SamplePlaces(NamedTuple):
    """The places of samples, as arrays.

    Attributes:
        rows: An item of `ROWS` for each sample.
        part_counts: Number of parts of each sample; int64.
        parts: The items of `PARTS` of all samples, one sample after the other.
    """

    rows: Array
    part_counts: Array
    parts: Array

    @property
    def owners(self) -> Array:
        """The position of each part's sample in ``rows``; int64."""
        return np.repeat(np.arange(len(self.rows)), self.part_counts)

    def of(self, exts: Sequence[int]) -> SamplePlaces:
        """Keep only the parts with these extensions, given by number."""
        kept = np.isin(self.parts["ext"], exts)
        counts = np.bincount(self.owners[kept], minlength=len(self.rows))
        return SamplePlaces(self.rows, counts, self.parts[kept])


class Shard(NamedTuple):
    """A shard of a segment.

    Attributes:
        first_row: The row of its first sample in the index of the segment.
        samples: Number of samples, without omitted ones if a version lists the shard.
        first: Number of samples planned for the shards before it.
        files: The first file has the shard's name.
        indexes: Indexes for other readers; see `larder.shards.formats.format_interface`.
        omitted: Ranges of its samples, counted from the first, that the version omits.
    """

    segment: str
    split: str
    first_row: int
    samples: int
    first: int
    files: tuple[StoredFile, ...]
    indexes: tuple[StoredFile, ...] = ()
    omitted: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        return self.files[0].name

    @property
    def published(self) -> tuple[StoredFile, ...]:
        """The shard's files and indexes."""
        return self.files + self.indexes

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class _Block(NamedTuple):
    """The items of consecutive rows; ``keys`` and ``parts`` begin at the block's own start."""

    first_row: int
    key_start: int
    part_start: int
    rows: Array
    parts: Array
    keys: Array

    def bounds(self, field: str, rows: Array) -> tuple[Array, Array]:
        """Return where the rows' keys (``key``) or parts (``part``) start and end in the block."""
        ends = self.rows[f"{field}_end"]
        numbers = rows - self.first_row
        first = self.key_start if field == "key" else self.part_start
        starts = np.where(numbers > 0, ends[numbers - 1], first)
        return starts - first, ends[numbers] - first


Mapper = Callable[[Callable[[int], _Block], Iterable[int]], Iterable[_Block]]
"""A function such as `map`, or an executor's `map`, whose threads read blocks concurrently."""

_KEPT_BLOCKS = 128
"""Number of cached blocks, of about half a megabyte each."""

_FEW_BLOCKS = 8
"""Maximum number of blocks that a call reads by ranges even if it could download the index."""

_WHOLE_BYTES = 2 << 30
"""Size above which an index is never downloaded as a whole."""


class SegmentIndex:
    """The index of the samples of a segment. Many threads may use it, also after a fork.

    In a directory the file is mapped. From a bucket, blocks are read by their ranges, and 128
    blocks are kept. Once a reader needs many blocks, or the same blocks again, the file is
    downloaded once for all processes of the machine, and mapped.

    Items are compared with the file's checksums once. A difference is a `DamageError`, and so is a
    number out of range.

    ``file`` is the file of role ``rows``. ``samples`` and ``classes`` are the expected counts; None
    if unknown.
    """

    def __init__(
        self,
        store: Store,
        file: StoredFile,
        directory: Path,
        samples: int | None = None,
        classes: int | None = None,
    ) -> None:
        self._store = store
        self._archive = archive = ArchiveReader(store, file, _NAMES)
        archive.keep_from(min(archive.members[name].offset for name in ("names", "exts", "blocks")))
        self._directory = directory
        self._classes = 1 << 31 if classes is None else classes
        self.names, self.exts = self._texts("names"), self._texts("exts")
        if not all(map(FILE.allows, self.names)):
            raise self._archive.invalid("the name of a shard is none")
        self._blocks = archive.array("blocks")
        self._lengths = {name: self._length(name) for name in ITEMS}
        self.count = self._lengths["rows"] if samples is None else samples
        if self._blocks.dtype != BLOCKS or self._blocks.ndim != 1:
            raise self._archive.invalid("blocks is not an array of blocks")
        blocks = -(-self.count // BLOCK_ROWS)
        if (self._lengths["rows"], len(self._blocks)) != (self.count, blocks):
            raise self._archive.invalid(f"it is not the index of {self.count:,} samples")
        if blocks and (self._blocks["key_start"][0] or self._blocks["part_start"][0]):
            raise self._archive.invalid("the first block does not begin at the first key and part")
        self._checked = np.zeros(len(self._blocks), np.bool_)
        self._loads = 0
        self._maps: dict[str, Array] | None = None
        self._may_map = archive.file.bytes <= _WHOLE_BYTES
        load = WeakMethod(self._load)  # in a cycle, the maps would not be closed with the last use
        self._block = lru_cache(_KEPT_BLOCKS)(
            lambda number: once_more(lambda: load()(number))  # type: ignore[misc]
        )

    def places(self, rows: Array, mapped: Mapper = map) -> SamplePlaces:
        """Return the places of samples, given their rows in ascending order."""
        places, counts, parts = [np.zeros(0, ROWS)], [np.zeros(0, np.int64)], [np.zeros(0, PARTS)]
        for block, inside in self._of_blocks(rows, mapped):
            starts, ends = block.bounds("part", inside)
            places.append(block.rows[inside - block.first_row])
            counts.append(ends - starts)
            parts.append(block.parts[_ranges(starts, ends)])
        return SamplePlaces(np.concatenate(places), np.concatenate(counts), np.concatenate(parts))

    def shards(self, split: str, samples: int) -> list[Shard]:
        """Return the shards of a split in order; a `DamageError` unless they have ``samples``
        samples.
        """
        shards = [shard for shard in _shards(self._archive) if shard.split == split]
        if sum(shard.samples for shard in shards) != samples:
            raise self._archive.invalid(f"split {split} has another number of samples")
        return shards

    def keys(self, rows: Array) -> Iterator[str]:
        """Yield the keys of samples, given their rows in ascending order."""
        for block, inside in self._of_blocks(rows, map):
            starts, ends = (bounds.tolist() for bounds in block.bounds("key", inside))
            text = block.keys.data
            try:
                for start, end in zip(starts, ends, strict=True):
                    yield str(text[start:end], "utf-8")
            except UnicodeDecodeError:
                raise self._archive.invalid("a key is not UTF-8") from None

    def samples(self, rows: Array) -> Iterator[IndexedSample]:
        """Yield the entries of samples, given their rows in ascending order."""
        places = self.places(rows)
        stops = np.cumsum(places.part_counts).tolist()
        parts = [
            IndexedPart(self.exts[ext], None if offset == NONE else offset, length, crc32c)
            for offset, length, ext, crc32c in places.parts.tolist()
        ]
        start = 0
        for key, row, stop in zip(self.keys(rows), places.rows.tolist(), stops, strict=True):
            _, shard, label, offset, length, _ = row
            place = self.names[shard], offset, length, None if label == NONE else label
            yield IndexedSample(key, *place, tuple(parts[start:stop]))
            start = stop

    def _of_blocks(self, rows: Array, mapped: Mapper) -> Iterator[tuple[_Block, Array]]:
        """Yield each block with its rows among ``rows``; a mapped index is one block."""
        if not len(rows):
            return
        if rows[-1] >= self.count:
            raise self._archive.invalid(f"it has {self.count:,} samples, not {rows[-1] + 1:,}")
        numbers = rows // BLOCK_ROWS
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        wanted = numbers[first].tolist()
        if self._maps is None and self._may_map and self._worth_mapping(len(wanted)):
            self._map()
        if self._maps is not None:
            for number in wanted:
                if not self._checked[number]:
                    self._load(number)
            yield _Block(0, 0, 0, *self._maps.values()), rows
            return
        blocks = mapped(self._block, wanted)
        yield from zip(blocks, np.split(rows, first[1:]), strict=True)

    def _worth_mapping(self, wanted: int) -> bool:
        local = self._store.features.local_path
        return local or wanted > _FEW_BLOCKS or self._loads > len(self._blocks)

    def _map(self) -> None:
        """Map the arrays. If the file cannot be downloaded, keep reading by ranges."""
        try:
            path = self._local_path()
        except (ConfigError, StoreError) as error:
            if error.code not in ("config.path", "store.full"):
                raise
            self._may_map = False
        else:
            self._maps = {name: self._mapped(path, name) for name in ITEMS}
            self._block.cache_clear()

    def _local_path(self) -> Path:
        """Return the path of the whole file, downloading it first if needed."""
        file = self._archive.file
        if self._store.features.local_path:
            path = local_path(self._store, file.path)
        else:
            path = self._directory / f"{file.sha256}.npz"
            with self._archive.errors():
                download_once(self._store, file.path, path, file.bytes, file.sha256)
        with disk_errors(path, reading=True):
            try:
                size_bytes = path.stat().st_size
            except FileNotFoundError:
                raise self._archive.damage("damage.size", "the file is missing") from None
        if size_bytes != file.bytes:  # reading a map beyond the end of its file kills the process
            message = f"the file has {size_bytes:,} bytes instead of {file.bytes:,}"
            raise self._archive.damage("damage.size", message)
        return path

    def _mapped(self, path: Path, name: str) -> Array:
        dtype, length = ITEMS[name], self._lengths[name]
        if not length:
            return np.zeros(0, dtype)
        with disk_errors(path, reading=True):
            return np.memmap(
                path, dtype, "r", self._archive.members[name].offset + HEADER_BYTES, (length,)
            )

    def _load(self, number: int) -> _Block:
        self._loads += 1
        block = self._blocks[number]
        first_row = number * BLOCK_ROWS
        starts = int(block["key_start"]), int(block["part_start"])
        items = partial(self._items, number)
        rows = items("rows", first_row, min(first_row + BLOCK_ROWS, self.count))
        self._check_rows(number, starts, rows)
        parts = items("parts", starts[1], int(rows["part_end"][-1]))
        if len(parts) and not (
            _most(parts["ext"]) < len(self.exts)
            and parts["offset"].min() >= NONE
            and _most(parts["length"]) < _MAX_BYTES // len(parts)
        ):
            raise self._archive.invalid("the place of a part is none")
        keys = items("keys", starts[0], int(rows["key_end"][-1]))
        self._checked[number] = True
        return _Block(first_row, *starts, rows, parts, keys)

    def _check_rows(self, number: int, starts: tuple[int, int], rows: Array) -> None:
        """Refuse rows of a block with numbers out of range."""
        first_row, following = number * BLOCK_ROWS, self._blocks[number + 1 : number + 2]
        for role, start in zip(("key", "part"), starts, strict=True):
            ends = rows[f"{role}_end"]
            before = start  # a mapped index reads the start from the previous row: it must agree
            if self._maps is not None and first_row:
                before = self._maps["rows"][f"{role}_end"][first_row - 1]
            in_order = 0 <= start <= ends[0] and bool(np.all(ends[1:] >= ends[:-1]))
            end = following[f"{role}_start"][0] if len(following) else self._lengths[f"{role}s"]
            if before != start or not in_order or ends[-1] != end:
                raise self._archive.invalid(f"the {role}s of a sample are none")
        if not (
            _most(rows["shard"]) < len(self.names)
            and _most(rows["label"] - NONE) <= self._classes
            and min(rows["offset"].min(), rows["length"].min()) >= 0
        ):
            raise self._archive.invalid("the shard, the label or the place of a sample is none")

    def _items(self, number: int, name: str, start: int, stop: int) -> Array:
        """Read some items of an array, and compare them with their checksum."""
        dtype, maps = ITEMS[name], self._maps
        items: Array
        if maps is not None:
            items = maps[name][start:stop]
        else:
            size = dtype.itemsize
            first = self._archive.members[name].offset + HEADER_BYTES
            items = np.frombuffer(
                self._archive.read(first + start * size, (stop - start) * size), dtype
            )
        if checksum(items) != self._blocks[number][f"{name}_crc32c"]:
            raise self._archive.damage("damage.digest", f"the {name} do not match their checksum")
        return items

    def _texts(self, name: str) -> list[str]:
        array = self._archive.array(name)
        if array.dtype.kind != "S" or array.ndim != 1:
            raise self._archive.invalid(f"{name} is not an array of texts")
        try:
            return [text.decode() for text in array.tolist()]
        except UnicodeDecodeError:
            raise self._archive.invalid(f"{name}: a text is not UTF-8") from None

    def _length(self, name: str) -> int:
        """Return the number of items of an array, without reading it."""
        length, rest = divmod(
            self._archive.members[name].bytes - HEADER_BYTES, ITEMS[name].itemsize
        )
        if length < 0 or rest:
            raise self._archive.invalid(f"the length of {name} is that of no such array")
        return length


def read_shards(store: Store, file: StoredFile) -> list[Shard]:
    """Return the shards of a segment in order, given its file of role ``rows``."""
    return list(_shards(ArchiveReader(store, file, _NAMES)))


def _shards(archive: ArchiveReader) -> Iterator[Shard]:
    files = archive.array("digests")
    if not _is_of_files(files):
        raise archive.invalid("digests is not an array of files")
    numbers = ("bytes", "samples", "first")
    if len(files) and max(_most(files[name]) for name in numbers) >= MAX_NUMBER:
        raise archive.invalid("a number of a file is none")
    segment = layout.segment_of(archive.file.path)
    folder = cache(partial(_folder, segment))
    head, first_row = ("", 0, 0), 0
    shard: list[StoredFile] = []
    indexes: list[StoredFile] = []
    for *texts, size_bytes, samples, first, sha256 in files.tolist():
        split, kind, name = (str(text, "latin-1") for text in texts)
        if not (SPLIT.allows(split) and FILE.allows(name) and (not kind or NAME.allows(kind))):
            raise archive.invalid("the name of a file is none")
        if shard and (samples or split != head[0]):  # the first file of the next shard
            yield Shard(segment, head[0], first_row, *head[1:], tuple(shard), tuple(indexes))
            first_row += head[1]
            shard, indexes = [], []
        if not shard:
            head = split, samples, first
        file = StoredFile(folder(split, kind) + name, size_bytes, sha256.hex(), kind or "shard")
        if kind and not shard:
            raise archive.invalid("an index is of no shard")
        (indexes if kind else shard).append(file)
    if shard:
        yield Shard(segment, head[0], first_row, *head[1:], tuple(shard), tuple(indexes))


def _folder(segment: str, split: str, kind: str) -> str:
    if kind:
        return layout.reader_index_key(segment, kind, split, "")
    return layout.shard_key(segment, split, "")


def _is_of_files(array: Array) -> bool:
    lengths = [array.dtype[name].itemsize for name in array.dtype.names or ()][:3]
    return array.ndim == 1 and len(lengths) == 3 and array.dtype == digests_dtype(*lengths)


def _most(numbers: Array) -> int:
    """Return the largest number. A negative number counts as larger than all others."""
    return int(numbers.view(f"u{numbers.itemsize}").max())


def _ranges(starts: Array, ends: Array) -> Array:
    """Return the numbers from each start to its end, one range after the other."""
    counts = ends - starts
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def listed_shards(
    shards: Iterable[Shard], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[Shard]:
    """Yield the shards with samples that are not omitted, given all shards of some segments, in
    order.

    ``omitted`` are the rows that the version omits, by segment and split.
    """
    first_rows: Counter[tuple[str, str]] = Counter()
    for shard in shards:
        place = shard.segment, shard.split
        first_row = first_rows[place]
        first_rows[place] += shard.samples
        gone = omitted.get(place)
        if gone is not None and len(gone.ranges):
            inside = gone.within(first_row, shard.samples)
            ranges = tuple((a, b) for a, b in inside.ranges.tolist())
            shard = shard._replace(samples=shard.samples - inside.count, omitted=ranges)
        if shard.samples:
            yield shard
