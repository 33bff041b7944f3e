"""``source.archives: expand``: which objects are archives, and how they are expanded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.extents import in_object
from larder.progress import Progress
from larder.source.expand.archives import index_archive
from larder.source.expand.expanded import Container, Expansion
from larder.source.expand.tar_names import ARCHIVE, COMPRESSED_ARCHIVE, is_compressed_archive
from larder.source.unlisted import beginning
from larder.store.base import ObjectInfo, Readable, Store

_Flags = npt.NDArray[np.bool_]

_ANY = f"(?i)(?:{ARCHIVE}|{COMPRESSED_ARCHIVE})"
_TAR = f"(?i)(?:{ARCHIVE})"


def _matching(keys: pa.Array, pattern: str) -> _Flags:
    flags: _Flags = pc.match_substring_regex(keys, pattern).to_numpy(zero_copy_only=False)
    return flags


def archives_to_list(include: Sequence[str]) -> Callable[[pa.Array], _Flags]:
    """Tells which keys are of archives whose members a glob may match."""
    starts = [beginning(glob) for glob in include]
    within = "|".join(map(re.escape, starts))
    # A glob that begins with a/b.tar/c may match members of a/b.tar, and of an archive a.
    above = sorted({start[:at] for start in starts for at, each in enumerate(start) if each == "/"})

    def found(keys: pa.Array) -> _Flags:
        folders = pc.binary_join_element_wise(keys, "", "/")
        may_match = _matching(folders, f"^(?:{within})")
        may_match |= pc.is_in(keys, pa.array(above, pa.string())).to_numpy(zero_copy_only=False)
        return may_match & _matching(keys, _TAR)

    return found


def archive_expansion(
    source: Readable,
    own: Readable,
    put: Store | None,
    progress: Progress,
    kept: Store | None = None,
) -> Expansion:
    """How archives are expanded (compressed ones are refused); ``put`` is None for a plan."""

    def indexed(info: ObjectInfo, path: Path, executor: Executor) -> Container:
        read = index_archive(source, info, own, put, path, executor, progress, kept)
        end = in_object(info.key, info.etag)
        return Container(info, end, last_counts=True, filtered=True, read=read)

    return Expansion(lambda keys: _matching(keys, _ANY), indexed, _refused)


def _refused(key: str) -> str | None:
    if is_compressed_archive(key):
        return "a compressed archive cannot be read by ranges: decompress it, or exclude it"
    return None
