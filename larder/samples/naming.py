"""Sample names in the keys of objects: WebDataset's rule, keys that readers mistake, patterns.

The rule is ``base_plus_ext`` of webdataset 1.0.2 (``webdataset/tariterators.py``): the sample key
is the directory and the base name up to its first dot, the extension is the text after the dot.
Readers convert extensions to lower case; here ``jpeg`` also becomes ``jpg``, even between dots
(``seg.jpeg`` becomes ``seg.jpg``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from larder.bounds import MAX_KEY_BYTES
from larder.errors import ConfigError, Failure

LABEL_EXT = "cls"
"""Extension of the part with the label, for WebDataset readers."""

LEFT_BY_MACOS = "macOS has left it beside a file or in a folder"
"""The reason why an object is not content of a dataset, as a clause."""

_MACOS = re.compile(r"(?:^|/)(?:\._[^/]*|\.DS_Store|__MACOSX/.*)$")
_MACOS_GLOBS = '["**/._*", "**/.DS_Store", "**/__MACOSX/**"]'

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_META = re.compile(r"__[^/]*__(?:/|$)")


def normalise_ext(ext: str) -> str:
    """Return the extension in lower case, with ``jpg`` instead of every component ``jpeg``."""
    return ".".join("jpg" if part == "jpeg" else part for part in ext.lower().split("."))


def is_left_by_macos(key: str) -> bool:
    """Whether Finder or an archiver of macOS has written an object unasked."""
    return _MACOS.search(key) is not None


def bad_key_hint(failures: Iterable[Failure]) -> str:
    """Return the hint for bad keys, with globs if macOS has left any of the objects."""
    macos = any(is_left_by_macos(failure.key) for failure in failures)
    globs = f"exclude what macOS leaves, with source.exclude: {_MACOS_GLOBS}; or " if macos else ""
    return f"{globs}rename or exclude them, or set on_bad_key: skip"


def may_be_part(key: str, size_bytes: int) -> bool:
    """Whether an object can be part of a sample, judging by its key and size alone."""
    is_directory_marker = size_bytes == 0 and key.endswith("/")
    return not is_directory_marker and bad_key_reason(key) is None


def bad_key_reason(key: str) -> str | None:
    """Return the reason why a part of a sample cannot have this key, as a clause."""
    return bad_path_reason(key) or _bad_name(key)


def bad_path_reason(key: str) -> str | None:
    """Return the reason why no part can have this path, as a clause."""
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        return "the key is not valid UTF-8"
    if size_bytes > MAX_KEY_BYTES:
        return f"the key has {size_bytes:,} bytes; the maximum is {MAX_KEY_BYTES:,}"
    fault = path_fault(key)
    return f"the key {fault}" if fault else None


def path_fault(path: str) -> str:
    """Return the reason why a string is not an object's path, as a verb phrase; empty if valid."""
    if _CONTROL.search(path):
        return "contains a control character"
    if path.startswith("/"):
        return "begins with /"
    segments = path.split("/")
    if not segments[-1]:
        return "is empty or ends in /"
    if "" in segments:
        return "contains an empty segment"
    dots = next((dots for dots in (".", "..") if dots in segments), "")
    return f"contains a segment {dots}" if dots else ""


def _bad_name(key: str) -> str | None:
    """Return the reason why WebDataset does not handle a name, as a clause.

    ``base_plus_ext``, ``tar_file_iterator`` and ``group_by_keys`` skip names without an extension.
    Hidden files are skipped, or become parts of one sample ``DIRECTORY/``. A first segment
    ``__x__`` is treated as metadata and skipped. An extension ``__key__`` would replace the entry
    of this name that readers store.
    """
    basename = key.rpartition("/")[2]
    stem, dot, ext = basename.partition(".")
    if not dot:
        return "the name has no extension"
    if not stem:
        return LEFT_BY_MACOS if is_left_by_macos(key) else "the name begins with a dot"
    if not ext:
        return "the name ends in its only dot"
    if _META.match(key):
        return "the first segment begins and ends with __"
    if ext.startswith("__") and ext.endswith("__"):
        return "the extension begins and ends with __"
    return None


SECONDS = 5.0
"""Time limit for one sample key; most keys take microseconds."""


class KeyPattern:
    """A user's regular expression; its first group tells something about a sample.

    ``(a+)+$`` takes longer than the age of the universe to fail to match forty letters. The package
    ``regex`` reads expressions like Python's ``re``, and has a timeout.
    """

    def __init__(self, text: str, option: str) -> None:
        import regex  # takes milliseconds, and few datasets have a pattern

        self._search = regex.compile(text).search
        self._option = option

    def groups(self, sample_keys: Sequence[str]) -> list[str | None]:
        """Return the first group in each key; None for a key that does not match."""
        groups: list[str | None] = []
        for sample_key in sample_keys:
            try:
                match = self._search(sample_key, timeout=SECONDS)
            except TimeoutError:
                raise self._too_slow(sample_key) from None
            groups.append(match[1] if match else None)
        return groups

    def _too_slow(self, sample_key: str) -> ConfigError:
        message = f"the pattern of {self._option} takes more than {SECONDS:g} s in this sample key"
        hint = "repeat nothing that is repeated itself, as in (a+)+, and anchor it with ^ or $"
        return ConfigError("config.invalid_value", message, where=sample_key, hint=hint)
