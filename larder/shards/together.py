"""Reads derived objects that are near each other in their container with one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from larder.errors import ObjectError
from larder.manifest.extents import in_object, in_own, parse_extent
from larder.shards.fetch import Contents, Fetched, fetch_all
from larder.shards.images import PLAIN, ImageRules, Validation
from larder.shards.model import Sample
from larder.shards.spans import spans
from larder.store.base import Readable
from larder.store.delegate import DelegatingReadable


class _Range(NamedTuple):
    """A derived object; ranges of one container are equal in ``end`` and ``container``."""

    container: str
    end: str
    offset: int
    length: int
    key: str
    etag: str

    @property
    def stop(self) -> int:
        return self.offset + self.length


def has_derived(sample: Sample) -> bool:
    """Whether some object of a sample is a derived object."""
    # A loop, because it is faster than a generator, and this is called for every sample.
    for part in sample.parts:  # noqa: SIM110
        if part.etag.startswith("@"):
            return True
    return False


def fetch_together(
    source: Readable,
    samples: Sequence[Sample],
    validate: Validation,
    *,
    skip: bool = False,
    rules: ImageRules = PLAIN,
) -> Contents | list[Fetched]:
    """The same as `fetch_all`, for samples with derived objects.

    Memory beyond the samples that are read: 1 MiB.
    """
    if any(map(has_derived, samples)):
        source = _Held(source, _read(source, _ranges(samples)))
    return fetch_all(source, samples, validate, skip=skip, rules=rules)


def _ranges(samples: Iterable[Sample]) -> Iterator[_Range]:
    for sample in samples:
        for part in sample.parts:
            extent = parse_extent(part.etag)
            if extent is not None:
                container = extent.container(part.key)
                end = in_own(container) if extent.own else in_object(container, extent.etag)
                yield _Range(container, end, extent.offset, extent.length, part.key, part.etag)


def _read(source: Readable, ranges: Iterable[_Range]) -> dict[tuple[str, str], bytes]:
    """The contents by key and etag, without those that cannot be read."""
    found = {}
    for _, group in groupby(sorted(ranges), key=lambda each: each[:2]):
        for span in spans(group):
            start, stop = span[0].offset, max(each.stop for each in span)
            etag = f"@{start}+{stop - start}{span[0].end}"
            try:
                data = source.get(span[0].key, if_match=etag)
            except ObjectError:
                continue  # each of them is tried by itself, and its own error reported
            for each in span:
                at = each.offset - start
                found[each.key, each.etag] = data[at : at + each.length]
    return found


class _Held(DelegatingReadable):
    """A store of which some objects were read already."""

    def __init__(self, inner: Readable, contents: Mapping[tuple[str, str], bytes]) -> None:
        super().__init__(inner)
        self._contents = contents

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """What was read, if it is a whole object; else as in the store."""
        held = self._contents.get((key, if_match or "")) if not offset and length is None else None
        if held is not None:
            return held
        return self.inner.get(key, offset=offset, length=length, if_match=if_match)
