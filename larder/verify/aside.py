"""Moves files aside before they are made again, and back if that fails: nothing is ever lost.

What is damaged goes to work/repair/RUN/PATH. It goes back where its place is still free when a
repair ends, or when the next one begins, as after a kill. Otherwise it stays: it may be the only
file with what belongs elsewhere.
"""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from larder.disk import check_inside, disk_errors, sync_folder
from larder.errors import (
    ConfigError,
    DamageError,
    FatalError,
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
)
from larder.manifest.sealed import from_plain, seal, unseal
from larder.progress import Progress
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.own_files import listed, published_file_errors, read_digest
from larder.verify.findings import has_content, readable
from larder.verify.job import VerifyJob, open_verified
from larder.versions import layout

STAGE = "repair"


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a damaged file; ``message`` says what it was made from, or why it was not."""

    path: str
    done: bool
    message: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """The process of a repair that is under way."""

    run: str
    host: str
    process: int


@contextmanager
def only_repair(root: Store, run: str) -> Iterator[None]:
    """Within, no other repair of the dataset begins; one that was killed here may have begun.

    Refused with ``run.repairing`` if another one has begun, and not ended.
    """
    key = layout.REPAIR_KEY
    claim = seal(_Claim(run, platform.node(), process_id()))
    try:
        with published_file_errors():
            etag = root.put(key, claim, if_absent=True).etag
    except PreconditionError:
        _end_claim(root, key)
        etag = root.put(key, claim, if_absent=True).etag
    try:
        yield
    finally:
        with suppress(LarderError):
            root.delete(key, if_match=etag)


def _end_claim(root: Store, key: str) -> None:
    """Delete the claim of a repair whose process has ended; refuse to if that is not certain."""
    claim: _Claim | None = None
    with suppress(NotFoundError):
        etag = root.head(key).etag
        with suppress(DamageError, ValueError):
            claim = from_plain(_Claim, unseal(readable(root, key) or b"", key))
        if claim and claim.host == platform.node() and not _is_running(claim.process):
            root.delete(key, if_match=etag)
            return
        message = "another repair of this dataset has begun, and not ended"
        if claim:
            message += f": {claim.run}, process {claim.process} on {claim.host}"
        where = object_url(root.url, key)
        hint = f"wait until it has ended; if it was killed, delete {where} and repair again"
        raise FatalError("run.repairing", message, where=where, hint=hint)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def process_id() -> int:
    return os.getpid()


def set_aside(
    job: VerifyJob, run: str, paths: Collection[str], *, progress: Progress
) -> list[Repair]:
    """Move files aside, so that their places are free; returns those that could not be moved."""
    root = open_verified(job)
    refused = []
    for path in paths:
        progress.advance(STAGE)
        try:
            if exists(root, path):
                _move(root, path, layout.aside_prefix(run) + path)
        except (ObjectError, DamageError) as error:
            hint = f"; {error.hint}" if error.hint else ""
            refused.append(Repair(path, False, f"it cannot be moved aside: {error.message}{hint}"))
    return refused


def put_back(job: VerifyJob, *, progress: Progress) -> None:
    """Move back what is aside wherever its place is free, of several what was moved last.

    What is in its place, too, is not needed.
    """
    del progress  # also if the run is stopped
    root = open_verified(job)
    keys = [info.key for info in listed(root, layout.aside_prefix()) if _is_aside(info.key)]
    for key in sorted(keys, reverse=True):
        with suppress(ObjectError, DamageError, ConfigError):  # it stays aside, and is reported
            if not exists(root, _place(key)):
                _move(root, key, _place(key))
            elif has_content(root, _place(key), *read_digest(root, key)):
                root.delete(key)


def exists(root: Store, path: str) -> bool:
    """Whether anything is at a path, readable or not."""
    if root.features.local_path:
        return os.path.lexists(local_path(root, path))
    try:
        root.head(path)
    except NotFoundError:
        return False
    return True


@dataclass
class Spares:
    """Files that may have the content of others: all that have one of the lengths looked for."""

    root: Store
    sizes: Collection[int]
    _keys: dict[int, list[str]] | None = field(default=None, init=False)

    def fill(self, path: str, size_bytes: int, sha256: str) -> str:
        """Copy a file from where its exact content is; returns that path.

        It is empty if no file has it, or if something was put in its place meanwhile.
        """
        for key in self._listed().get(size_bytes, ()):
            if key != path and has_content(self.root, key, size_bytes, sha256):
                if exists(self.root, path):
                    break
                with suppress(ObjectError):
                    try:
                        _copy(self.root, key, path)
                    except DamageError:
                        self.root.delete(path)
                    else:
                        return key
        return ""

    def _listed(self) -> dict[int, list[str]]:
        if self._keys is None:
            self._keys = defaultdict(list)
            for prefix in (layout.aside_prefix(), "versions/", layout.SEGMENTS_PREFIX, "tags/"):
                for info in listed(self.root, prefix):
                    if info.size_bytes in self.sizes:
                        self._keys[info.size_bytes].append(info.key)
        return self._keys


def _is_aside(key: str) -> bool:
    """Whether a repair has moved it there: something else may be beside the folders of runs."""
    return key.count("/") > layout.aside_prefix().count("/")


def _place(key: str) -> str:
    """Where a file was before it was moved to work/repair/RUN/PATH."""
    return key.split("/", 3)[3]


def _move(root: Store, source: str, target: str) -> None:
    """Rename a file; where stores cannot, copy it, compare the copy, and delete it.

    Where that fails, the file stays; so does the copy if the file was changed meanwhile.
    """
    if not root.features.local_path:
        etag = _copy(root, source, target)
        root.delete(source, if_match=etag)
        return
    path, moved = local_path(root, source), local_path(root, target)
    if path.is_symlink() or not path.is_file():
        hint = "move what is in its place elsewhere, and repair again"
        where = object_url(root.url, source)
        raise ObjectError("object.bad_key", "what has its name is no file", where=where, hint=hint)
    with disk_errors(moved):
        for folder in (path.parent, moved.parent):
            check_inside(os.fsencode(folder), os.fsencode(local_path(root, "x").parent))
        moved.parent.mkdir(parents=True, exist_ok=True)
        path.rename(moved)
        for folder in (moved.parent, path.parent):
            sync_folder(os.fsencode(folder))
    with suppress(OSError):  # folders of the aside that are empty now
        for folder in path.parents if source.startswith(layout.aside_prefix()) else ():
            folder.rmdir()


def _copy(root: Store, source: str, target: str) -> str:
    """Copy a file, and compare the copy; returns the etag of what was read."""
    with published_file_errors():
        etag = root.head(source).etag
    with published_file_errors(), root.writer(target) as writer:
        content = read_digest(root, source, writer.write)
        writer.commit()
    if not has_content(root, target, *content):
        message = "the copy does not have the bytes that were read"
        raise DamageError("damage.digest", message, where=object_url(root.url, target))
    return etag
