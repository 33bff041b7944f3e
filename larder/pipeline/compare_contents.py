"""Compares the contents of objects with what was packed, where etags do not tell them apart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.config.images import Transform
from larder.errors import ObjectError
from larder.limits import map_ahead
from larder.progress import Progress
from larder.samples.columns import column_structs
from larder.samples.images import is_image
from larder.shards.fetch import UNDECODABLE, check_streamed, fetch, sample_bytes
from larder.shards.images import ImageRules, Validation, stored_image
from larder.shards.model import Part, Sample
from larder.shards.transform import codec_versions
from larder.store.base import Readable

READERS = 8
"""Objects that are read at once."""

MAX_CHECKED_BYTES = 64 * 1024**2
"""A larger sample that was bad is not read into memory: only the ranges that are needed are."""

_Flags = npt.NDArray[np.bool_]


class ContentComparer:
    """Compares the contents of objects with checksums; a context manager."""

    def __init__(
        self, source: Readable, validate: Validation, rules: ImageRules, progress: Progress
    ) -> None:
        self._source = source
        self._validate = validate
        self._rules = rules
        self._progress = progress
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="check")
        self._started = False
        self.transforms: tuple[Transform | None, ...] = ()

    def transformed(self, exts: pa.Array, segments: npt.NDArray[np.int32]) -> _Flags:
        """Which parts are images that their segments (-1 for none) have transformed."""
        flags: _Flags = np.array([each is not None for each in (*self.transforms, None)])[segments]
        if flags.any():
            encoded = exts.dictionary_encode()
            images = [is_image(ext) for ext in encoded.dictionary.to_pylist()]
            flags &= np.array(images, np.bool_)[encoded.indices.to_numpy()]
        return flags

    def repeatable(self, segments: npt.NDArray[np.int32]) -> _Flags:
        """Whether images can be transformed as they were in their segments."""
        own = self._rules.transform
        now = replace(own, codecs=codec_versions()) if own else None
        flags: _Flags = np.array([each == now for each in (*self.transforms, None)])[segments]
        return flags

    def same(self, now: pa.StructArray, then: pa.StructArray, stored: _Flags) -> _Flags:
        """Whether each object has the content of the part.

        ``now`` are parts of `SAMPLE_ORDER`, ``then`` of `larder.manifest.schemas.SAMPLES`;
        ``stored`` says which of them are transformed before they are compared.
        """
        if not len(now) or self._source.features.etag_is_md5:
            return np.zeros(len(now), np.bool_)
        if not self._started:
            self._progress.start("compare")
            self._started = True
        columns = (now.field("key"), now.field("etag"), then.field("crc32c"), then.field("ext"))
        rows = zip(*(column.to_pylist() for column in columns), stored.tolist(), strict=True)
        found = map_ahead(self._pool, lambda row: self._is(*row), rows, window=4 * READERS)
        return np.fromiter(found, np.bool_, len(now))

    def still_bad(self, now: pa.RecordBatch) -> _Flags:
        """Whether samples that were bad still are, although the etags of their objects differ.

        ``now`` are rows of `_NOW`. They are checked wherever they are, because a file system does
        not tell whether they were changed: so what is planned is the same everywhere.
        """
        names = Part._fields
        samples = (
            Sample("", key, None, parts)
            for key, parts in zip(
                now.column("key").to_pylist(),
                column_structs(now.column("parts"), names, Part),
                strict=True,
            )
        )
        return np.fromiter(map(self._is_bad, samples), np.bool_, now.num_rows)

    def _is_bad(self, sample: Sample) -> bool:
        read = check_streamed if sample_bytes(sample) > MAX_CHECKED_BYTES else fetch
        failures = read(self._source, sample, self._validate, rules=self._rules).failures
        return bool(failures) and all(failure.code == UNDECODABLE for failure in failures)

    def _is(self, key: str, etag: str, crc32c: int, ext: str, stored: bool) -> bool:
        crc = 0
        try:
            if stored:
                data = self._source.get(key, if_match=etag or None)
                image = stored_image(ext, data, where=key, rules=self._rules)
                return image is not None and google_crc32c.value(image) == crc32c
            with self._source.open(key, if_match=etag or None) as reader:
                for buffer in reader:
                    crc = google_crc32c.extend(crc, bytes(buffer))
        except ObjectError:
            return False
        finally:
            self._progress.advance("compare", objects=1)
        return crc == crc32c

    def __enter__(self) -> ContentComparer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._started:
            self._progress.finish("compare")
