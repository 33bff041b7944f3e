"""How the key of an object names its sample: WebDataset's rule, and keys that readers mistake.

The rule is ``base_plus_ext`` of webdataset 1.0.2 (``webdataset/tariterators.py``): the sample key
is the directory and the base name up to its first dot, the extension is everything after it.
Readers convert extensions to lower case; here ``jpeg`` also becomes ``jpg``, even between dots
(``seg.jpeg`` becomes ``seg.jpg``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from larder.bounds import MAX_KEY_BYTES
from larder.errors import Failure

LABEL_EXT = "cls"
"""Extension of the part with the label, as WebDataset readers expect it."""

LEFT_BY_MACOS = "macOS has left it beside a file or in a folder"
"""Why an object has no content of a dataset, as a clause."""

_MACOS = re.compile(r"(?:^|/)(?:\._[^/]*|\.DS_Store|__MACOSX/.*)$")
_MACOS_GLOBS = '["**/._*", "**/.DS_Store", "**/__MACOSX/**"]'

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_META = re.compile(r"__[^/]*__(?:/|$)")


def normalise_ext(ext: str) -> str:
    """The extension in lower case, with ``jpg`` instead of every component ``jpeg``."""
    return ".".join("jpg" if part == "jpeg" else part for part in ext.lower().split("."))


def is_left_by_macos(key: str) -> bool:
    """Tell whether Finder or an archiver of macOS has written an object of its own accord."""
    return _MACOS.search(key) is not None


def bad_key_hint(failures: Iterable[Failure]) -> str:
    """Return what helps against bad keys, with globs if macOS has left any of the objects."""
    macos = any(is_left_by_macos(failure.key) for failure in failures)
    globs = f"exclude what macOS leaves, with source.exclude: {_MACOS_GLOBS}; or " if macos else ""
    return f"{globs}rename or exclude them, or set on_bad_key: skip"


def is_directory_marker(key: str, size_bytes: int) -> bool:
    """Whether an object only represents a folder: its key ends in ``/`` and it is empty."""
    return size_bytes == 0 and key.endswith("/")


def may_be_part(key: str, size_bytes: int) -> bool:
    """Whether an object can be part of a sample, judging by its key and size alone."""
    return not is_directory_marker(key, size_bytes) and bad_key_reason(key) is None


def bad_key_reason(key: str) -> str | None:
    """Why a part of a sample cannot have this key, as a clause; None if it can."""
    return bad_path_reason(key) or _bad_name(key)


def bad_path_reason(key: str) -> str | None:
    """Why no part can have this key, whatever its name means, as a clause; None if one can."""
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        return "the key is not valid UTF-8"
    if size_bytes > MAX_KEY_BYTES:
        return f"the key has {size_bytes:,} bytes; the maximum is {MAX_KEY_BYTES:,}"
    fault = path_fault(key)
    return f"the key {fault}" if fault else None


def path_fault(path: str) -> str:
    """Why a string is not the path of an object, as a verb with its object; empty if it is."""
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
    """Names that ``base_plus_ext``, ``tar_file_iterator`` and ``group_by_keys`` do not handle.

    Names without an extension are skipped. Hidden files are skipped, or become parts of one sample
    ``DIRECTORY/``. A first segment ``__x__`` is treated as metadata and skipped; an extension
    ``__key__`` would replace what readers store under that name.
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
