"""Which keys of a listing a run takes: by globs, column by column, and never Larder's own files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.patterns import compile_globs
from larder.store.base import ObjectInfo

OWN_PREFIX = "_larder/"
"""Prefix of Larder's own files at the root of a bucket or directory that it copies to."""

_AFTER_OWN = "_larder0"
"""The first key after all of those: 0 follows / in ASCII."""

_EVERYTHING = ("**",)

_Flags = npt.NDArray[np.bool_]


class KeyRule:
    """Globs of which one has to match, applied to keys by the column."""

    def __init__(self, globs: Sequence[str]) -> None:
        self.everything = tuple(globs) == _EVERYTHING
        pattern = compile_globs(globs)
        # In RE2, $ is the end of the string; Python's would also match before a final newline.
        self._pattern = f"^(?:{pattern.pattern})$" if pattern else None

    def __call__(self, keys: pa.Array) -> _Flags:
        if self.everything or self._pattern is None:
            return np.full(len(keys), self.everything)
        matched = pc.match_substring_regex(keys, self._pattern)
        flags: _Flags = matched.to_numpy(zero_copy_only=False)
        return flags


def without_own(pages: Iterable[list[ObjectInfo]]) -> Iterator[list[ObjectInfo]]:
    """The pages of a listing from a root, without Larder's own files below it."""
    for page in pages:
        if page[-1].key < OWN_PREFIX or page[0].key >= _AFTER_OWN:
            yield page
        elif others := [info for info in page if not info.key.startswith(OWN_PREFIX)]:
            yield others
