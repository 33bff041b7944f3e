"""A large sample whose images are transformed: these are in memory, its other parts are not."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace

from larder.errors import Failure, ObjectError
from larder.samples.images import is_image
from larder.shards.fetch import RANGE_BYTES, failure_of, part_file, stream
from larder.shards.images import ImageRules, stored_image
from larder.shards.model import Sample
from larder.store.base import Features, ObjectInfo, Readable, Reader
from larder.store.memory import MemoryReader


def transformed_sample(
    source: Readable, sample: Sample, rules: ImageRules, *, skip: bool
) -> tuple[Sample, Readable, list[Failure]]:
    """Transform the images of a sample that is too large for memory.

    Each object is read twice: from front to back, to compare it with the plan, and in ranges.
    Returned are the sample with the sizes of what is stored, a store that has it under the keys and
    etags of its objects, and the failures. ``skip`` as in `larder.shards.fetch.fetch`.
    """
    contents: dict[str, bytes] = {}
    parts = list(sample.parts)
    failures = []
    for place, part in enumerate(sample.parts):
        if not is_image(part.ext):
            continue
        try:
            for _ in stream(source, part):
                pass
            with io.BufferedReader(part_file(source, part), RANGE_BYTES) as file:
                data = stored_image(part.ext, file, where=part.key, rules=rules)
            assert data is not None, "images are transformed"
        except ObjectError as error:
            failures.append(failure_of(part, error, skip=skip))
            continue
        contents[part.key] = data
        parts[place] = part._replace(size_bytes=len(data))
    etags = {part.key: part.etag for part in parts}
    return sample._replace(parts=tuple(parts)), _Transformed(source, contents, etags), failures


class _Transformed(Readable):
    """A store some of whose objects have been replaced.

    ``etags`` are those under which the new contents are asked for.
    """

    def __init__(
        self, inner: Readable, contents: Mapping[str, bytes], etags: Mapping[str, str]
    ) -> None:
        self._inner = inner
        self._contents = contents
        self._etags = etags

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def features(self) -> Features:
        """Those of the store, except that etags are of other contents."""
        return replace(self._inner.features, etag_is_md5=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        return self._inner.list(prefix, start_after=start_after)

    def head(self, key: str) -> ObjectInfo:
        """The new size of an object, with its old etag."""
        data = self._contents.get(key)
        if data is None:
            return self._inner.head(key)
        return ObjectInfo(key, len(data), self._etags[key], 0)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        data = self._contents.get(key)
        if data is None:
            return self._inner.open(key, offset=offset, length=length, if_match=if_match)
        stop = None if length is None else offset + length
        return MemoryReader(self.head(key), memoryview(data)[offset:stop])
