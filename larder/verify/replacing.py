"""Puts a file in the place of a damaged file, in one write: nothing is lost.

The damaged file is first kept at work/replaced/PATH-STATE. It may be the only file with the content
of another file, as after two files were exchanged.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from larder.disk import check_inside, sync_folder
from larder.errors import DamageError, NotFoundError, ObjectError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import StoredFile
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.own_files import published_file_errors, read_digest
from larder.verify.verify_job import has_content
from larder.versions import layout

STAGE = "repair"


@dataclass(frozen=True, slots=True)
class Repair:
    """Result for a damaged file; ``message`` says its origin, or why it was not repaired."""

    path: str
    done: bool
    message: str


def check_place(root: Store, path: str) -> None:
    """Refuse to replace anything but a file: ``object.bad_key``."""
    if root.features.local_path:
        place = local_path(root, path)
        if os.path.lexists(place) and (place.is_symlink() or not place.is_file()):
            hint = "move what is in its place elsewhere, and repair again"
            message = f"what has its name is no file; {hint}"
            where = object_url(root.url, path)
            raise ObjectError("object.bad_key", message, where=where, hint=hint)


def replace_file(root: Store, file: StoredFile, made: Path) -> None:
    """Put a file that was made, and compared, in its place.

    ``damage.digest``: the store has not kept the bytes.
    """
    keep(root, file.path)
    with published_file_errors():
        root.upload(file.path, made)
    _check(root, file)


def keep(root: Store, path: str) -> str | None:
    """Copy the file in a place to the replaced files; in a directory, as a hard link.

    Returns the file's etag; None if there is no file.
    """
    try:
        etag = root.head(path).etag
    except NotFoundError:
        return None
    kept = layout.replaced_key(path, sha256_hex(etag.encode())[:16])
    if not _linked(root, path, kept):
        file = StoredFile(kept, *read_digest(root, path), "replaced")  # or refused: unreadable
        with published_file_errors(), root.writer(kept) as writer:
            read_digest(root, path, writer.write)
            writer.commit()
        _check(root, file)
    return etag


def _linked(root: Store, path: str, kept: str) -> bool:
    """Give a file a second name; False in buckets, and on file systems without hard links."""
    if not root.features.local_path:
        return False
    place = local_path(root, kept)
    with suppress(OSError):
        check_inside(os.fsencode(place.parent), os.fsencode(local_path(root, "x").parent))
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # a repair was stopped right after
            os.link(local_path(root, path), place)
        sync_folder(os.fsencode(place.parent))
        return True
    return False


def _check(root: Store, file: StoredFile) -> None:
    if not has_content(root, file):
        message = "the store has not kept the bytes that were written"
        raise DamageError("damage.digest", message, where=object_url(root.url, file.path))
