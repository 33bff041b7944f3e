"""Reads objects if etags do not tell whether their contents have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.budgets import map_ahead
from larder.config.shape import Transform
from larder.errors import ObjectError
from larder.manifest.digest import format_crc32c
from larder.manifest.extents import is_derived
from larder.progress import Progress
from larder.samples.arrow_columns import column_structs
from larder.samples.image_parts import is_image
from larder.shards.images.check import ImageRules, stored_image
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.fetch import UNDECODABLE, fetch, sample_bytes
from larder.shards.reading.large import check_streamed
from larder.store.base import Readable

READERS = 8
"""Number of objects that are read at once."""

MAX_CHECKED_BYTES = 64 * 1024**2
"""Size above which a bad sample is not read into memory, except for the ranges that are needed."""

_Flags = npt.NDArray[np.bool_]


class PackedPart(NamedTuple):
    """An object, and the checksum of its part, or if ``stored``, of the transformed image."""

    key: str
    etag: str
    crc32c: int
    ext: str
    stored: bool


def same_contents(
    source: Readable, rules: ImageRules, parts: Sequence[PackedPart], *, progress: Progress
) -> list[bool]:
    """Return whether each object still has the contents that its part was packed from."""

    def is_same(part: PackedPart) -> bool:
        same = _is_same(source, rules, part)
        progress.advance("compare", objects=1)
        return same

    with ThreadPoolExecutor(READERS, thread_name_prefix="check") as pool:
        return list(map_ahead(pool, is_same, parts, window=4 * READERS))


class ObjectCheck:
    """Compares the contents of objects with checksums; a context manager.

    ``transforms`` are the transforms of the previous segments, and ``current`` is the transform of
    a new segment. The source is read only if etags do not tell contents apart. ``compare`` calls
    `same_contents`, here or in other processes.
    """

    def __init__(
        self,
        source: Readable,
        rules: ImageRules,
        transforms: Sequence[Transform | None],
        current: Transform | None,
        progress: Progress,
        compare: Callable[[Sequence[PackedPart]], Sequence[bool]],
    ) -> None:
        self._source = source
        self._rules = rules
        self._progress = progress
        self._transforms = np.array([each is not None for each in transforms], np.bool_)
        self._repeatable = np.array([each == current for each in transforms], np.bool_)
        self._compare = compare
        self._started = False

    def stored(self, exts: pa.Array, segments: npt.NDArray[np.int32]) -> _Flags:
        """Return which parts are images that their segments have transformed."""
        flags: _Flags = self._transforms[segments]
        if flags.any():
            encoded = exts.dictionary_encode()
            images = [is_image(ext) for ext in encoded.dictionary.to_pylist()]
            flags &= np.array(images, np.bool_)[encoded.indices.to_numpy()]
        return flags

    def same(self, parts: pa.RecordBatch) -> _Flags:
        """Return which objects have the contents that they had when they were packed.

        A transformed image is transformed again, if the transform and its libraries are the same.
        """
        same = _same_checksums(parts)
        if self._source.features.etag_is_md5:
            return same
        segments = parts.column("segment").to_numpy()
        stored = self.stored(parts.column("ext"), segments)
        unsure = np.flatnonzero(~same & (~stored | self._repeatable[segments]))
        if len(unsure) and not self._started:
            self._progress.start("compare")
            self._started = True
        columns = [parts.column(name) for name in ("key", "etag", "crc32c", "ext")]
        values = (column.take(pa.array(unsure)).to_pylist() for column in columns)
        rows = map(PackedPart, *values, stored[unsure].tolist())
        same[unsure] = self._compare([*rows])
        return same

    def still_bad(self, samples: pa.RecordBatch) -> _Flags:
        """Return which bad samples are still bad, although the etags of their objects differ.

        They are checked on every kind of source, because a file system does not tell whether they
        were changed. So the plan is the same everywhere.
        """
        keys = samples.column("key").to_pylist()
        parts = column_structs(samples.column("parts"), Part._fields, Part)
        bad = (self._is_bad(PlannedSample("", *each)) for each in zip(keys, repeat(None), parts))
        return np.fromiter(bad, np.bool_, len(keys))

    def _is_bad(self, sample: PlannedSample) -> bool:
        read = check_streamed if sample_bytes(sample) > MAX_CHECKED_BYTES else fetch
        failures = read(self._source, sample, self._rules).failures
        return bool(failures) and all(failure.code == UNDECODABLE for failure in failures)

    def __enter__(self) -> ObjectCheck:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started:
            self._progress.finish("compare")


def _is_same(source: Readable, rules: ImageRules, part: PackedPart) -> bool:
    crc = 0
    try:
        if part.stored:
            data = source.get(part.key, if_match=part.etag or None)
            image = stored_image(part.ext, data, where=part.key, rules=rules)
            return image is not None and google_crc32c.value(image) == part.crc32c
        with source.open(part.key, if_match=part.etag or None) as reader:
            for buffer in reader:
                crc = google_crc32c.extend(crc, bytes(buffer))
    except ObjectError:
        return False
    return crc == part.crc32c


def _same_checksums(parts: pa.RecordBatch) -> _Flags:
    """Return which derived objects have the same checksum as before, wherever they are now."""
    columns = (parts.column("checksum"), parts.column("crc32c"), is_derived(parts.column("etag")))
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    same = [derived and checksum == format_crc32c(crc) for checksum, crc, derived in rows]
    return np.array(same, np.bool_)
