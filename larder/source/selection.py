"""Selects keys of a listing for a run, by globs on whole columns, without Larder's own files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.patterns import compile_globs
from larder.errors import ConfigError, Failure, Failures, ObjectError
from larder.samples.arrow_columns import Flags, column_flags
from larder.store.base import ObjectInfo
from larder.store.own_files import OWN_PREFIX

_AFTER_OWN = "_larder0"
"""The first key after Larder's own files: 0 follows / in ASCII."""

_EVERYTHING = ("**",)
_KEY = re.compile(r"[^*?\[{]+")
_ANY_EXTENSION = re.compile(r"((?:[^*?\[{]*/)?[^*?\[{/.]+)\.\*")
_STEM = r"^(?P<stem>(?s:.*/)?[^/.]+)\.[^/]*$"


class KeyRule:
    """Globs applied to whole columns of keys; at least one glob has to match.

    Globs like ``KEY`` and ``KEY.*`` are looked up: a hundred thousand are too many for a regular
    expression.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        self.everything = tuple(globs) == _EVERYTHING
        stems = {glob: match[1] for glob in globs if (match := _ANY_EXTENSION.fullmatch(glob))}
        keys = [glob for glob in globs if _KEY.fullmatch(glob)]
        self._keys, self._stems = (pa.array(names, pa.string()) for names in (keys, stems.values()))
        looked_up = {*stems, *keys}
        pattern = compile_globs(glob for glob in globs if glob not in looked_up)
        # In RE2, $ is the end of the string; Python's would also match before a final newline.
        self._pattern = f"^(?:{pattern.pattern})$" if pattern else None
        try:
            pc.match_substring_regex(pa.array([""]), self._pattern or "")
        except pa.ArrowInvalid:
            message = f"{len(globs):,} globs are too many for one regular expression"
            hint = "name keys, of which there may be more: those without a wildcard are looked up"
            raise ConfigError("config.invalid_value", message, hint=hint) from None

    def __call__(self, keys: pa.Array) -> Flags:
        flags = np.full(len(keys), self.everything)
        if self._pattern is not None and not self.everything:
            flags |= column_flags(pc.match_substring_regex(keys, self._pattern))
        if len(self._keys):
            flags |= column_flags(pc.is_in(keys, self._keys))
        if len(self._stems):
            stems = pc.struct_field(pc.extract_regex(keys, _STEM), "stem")
            flags |= column_flags(pc.is_in(stems, self._stems))
        return flags


def without_own(pages: Iterable[list[ObjectInfo]]) -> Iterator[list[ObjectInfo]]:
    """Yield the pages of a listing from a root, without Larder's own files below it."""
    for page in pages:
        if page[-1].key < OWN_PREFIX or page[0].key >= _AFTER_OWN:
            yield page
        elif others := [info for info in page if not info.key.startswith(OWN_PREFIX)]:
            yield others


NEVER_TRIED = 0
"""Attempts of a failure to list a path: there was no object to try."""

_LITERAL = re.compile(r"[^*?\[{]*")
_NAMES = ("\x01", "a", "Z.jpg", "0000", "é")
"""Examples of names in a directory: an exclude glob that matches these matches all names."""


class Unlisted:
    """Collects paths that could not be listed and may be included; calls ``note`` for each."""

    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str],
        note: Callable[[Failure], None] | None = None,
    ) -> None:
        self.failures = Failures()
        self._beginnings = [(beginning(glob), _depth(glob)) for glob in include]
        self._included = KeyRule(include)
        self._excluded = KeyRule(exclude)
        self._note = note
        self._last = b""

    def __call__(self, path: bytes, error: ObjectError) -> None:
        """Note a file, or a directory whose path ends in a slash.

        Paths come in the order of a listing; a listing repeated from its last good page may report
        a path again.
        """
        if path <= self._last:
            return
        self._last = path
        key = path.decode("utf-8", "backslashreplace")
        if key.startswith(OWN_PREFIX):
            return
        if not (self._may_be_wanted(key) if key.endswith("/") else self._wanted_file(key)):
            return
        failure = Failure.of(key, error)._replace(attempts=NEVER_TRIED)
        self.failures.add(failure)
        if self._note is not None:
            self._note(failure)

    def may_have(self, keys: pa.Array) -> Flags:
        """Flag keys that may be in the source although the listing lacks them.

        All keys are flagged if there are too many paths to keep each by name.
        """
        shown = self.failures.shown
        if self.failures.count > len(shown):
            return np.ones(len(keys), np.bool_)
        flags = np.zeros(len(keys), np.bool_)
        for failure in shown if len(keys) else ():
            below = pc.starts_with(keys, f"{failure.key.removesuffix('/')}/")
            flags |= column_flags(pc.or_(below, pc.equal(keys, failure.key)))
        return flags

    def _wanted_file(self, key: str) -> bool:
        """Whether a file is wanted, or a directory if the path is a link to one.

        A path may be such a link if its name has no extension, or if a glob begins with the path
        and a slash.
        """
        keys = pa.array([key])
        if self._excluded(keys).any() or self._included(keys).any():
            return not self._excluded(keys).any()
        folder = f"{key}/"
        named = any(start.startswith(folder) for start, _ in self._beginnings)
        return (named or "." not in key.rpartition("/")[2]) and self._may_be_wanted(folder)

    def _may_be_wanted(self, folder: str) -> bool:
        included = any(
            (folder.startswith(start) or start.startswith(folder)) and folder.count("/") <= depth
            for start, depth in self._beginnings
        )
        inside = pa.array([f"{folder}{sub}{name}" for sub in ("", "b/") for name in _NAMES])
        return included and not self._excluded(inside).all()


def beginning(glob: str) -> str:
    """Return the common beginning of all keys that a glob matches."""
    match = _LITERAL.match(glob)
    assert match is not None, "it matches the empty string"
    return match[0]


def _depth(glob: str) -> float:
    """Return the maximum number of slashes in a key that a glob matches."""
    return math.inf if "**" in glob else glob.count("/")
