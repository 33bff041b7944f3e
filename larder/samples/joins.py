"""Names the parts of samples that several patterns find, such as images and their masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.patterns import PartPattern, part_pattern

NAMES = pa.schema(
    [pa.field("sample", pa.string()), pa.field("ext", pa.string()), pa.field("pattern", pa.int16())]
)
"""The sample key, the extension and the number of the pattern of each object; null without one."""

_NONE = -1


class Joins:
    """The patterns of ``samples.join``. The first one that matches a key counts.

    Extensions of parts begin with the names of the patterns, if these have any; ``names`` is what
    each pattern is called in messages.
    """

    def __init__(self, join: Mapping[str, str] | Sequence[str]) -> None:
        named = list(join.items()) if isinstance(join, Mapping) else [("", text) for text in join]
        self.names = [name or text for name, text in named]
        self._patterns = [(name, part_pattern(text)) for name, text in named]

    def split(self, keys: pa.Array) -> pa.RecordBatch:
        """Rows of `NAMES`, one for each key; extensions are not normalised."""
        pattern = np.full(len(keys), _NONE, np.int16)
        found: list[tuple[pa.Array, pa.Array]] = []
        rows: list[np.typing.NDArray[np.intp]] = []
        for number, (name, each) in enumerate(self._patterns):
            left = np.flatnonzero(pattern == _NONE)
            if not len(left):
                break
            groups = pc.extract_regex(keys.take(pa.array(left)), each.regex)
            with_ext = pc.not_equal(pc.struct_field(groups, "ext"), "")
            matched = pc.fill_null(with_ext, False).to_numpy(zero_copy_only=False)
            chosen = groups.filter(pa.array(matched))
            pattern[left[matched]] = number
            rows.append(left[matched])
            found.append((chosen.field("id"), _exts(name, each, chosen)))
        return _in_place(rows, found, pattern)


def _exts(name: str, pattern: PartPattern, groups: pa.StructArray) -> pa.Array:
    """The name, what the wildcards stand for and the extension, joined by dots."""
    exts = groups.field("ext")
    for number in reversed(range(pattern.wildcards)):
        text = groups.field(f"w{number}")
        longer = pc.binary_join_element_wise(text, exts, ".")
        exts = pc.if_else(pc.equal(text, ""), exts, longer)
    return pc.binary_join_element_wise(name, exts, ".") if name else exts


def _in_place(
    rows: Sequence[np.typing.NDArray[np.intp]],
    found: Sequence[tuple[pa.Array, pa.Array]],
    pattern: np.typing.NDArray[np.int16],
) -> pa.RecordBatch:
    """The findings of all patterns in the order of the keys, with nulls for the others."""
    places = np.zeros(len(pattern), np.int64)
    matched = pattern != _NONE
    if rows:
        places[np.concatenate(rows)] = np.arange(int(matched.sum()))
    taken = pa.array(places, mask=~matched)
    columns = [
        pa.concat_arrays([pa.array([], pa.string()), *(each[at] for each in found)]).take(taken)
        for at in range(2)
    ]
    return pa.RecordBatch.from_arrays([*columns, pa.array(pattern, mask=~matched)], schema=NAMES)
