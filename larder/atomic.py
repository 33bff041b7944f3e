"""Files that appear under their final name only when they are complete.

A file is written under a temporary name in the same directory; see `larder.temporary`. Files that
killed processes left there are removed when something is next written there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larder.disk import disk_errors
from larder.temporary import open_draft, sweep_drafts


class Draft:
    """A file under its temporary name, open for reading and writing; created by `draft`."""

    def __init__(self, path: Path, handle: int, final: Path) -> None:
        self.path = path
        self.handle = handle
        self._final = final

    def write(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data).cast("B")
        with disk_errors(self._final):
            while left:
                left = left[os.write(self.handle, left) :]

    def publish(self) -> None:
        """Make the file durable and give it its final name, replacing an existing file."""
        with disk_errors(self._final):
            os.fsync(self.handle)
            os.replace(self.path, self._final)
            sync_folder(os.fsencode(self._final.parent))


@contextmanager
def draft(final: Path) -> Iterator[Draft]:
    """An empty file for ``final``, in the same directory, which is created if needed.

    Unless `Draft.publish` is called, the file is removed afterwards.
    """
    with disk_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = os.fsencode(final.parent)
        name, handle = open_draft(folder)
    path = Path(os.fsdecode(name))
    try:
        sweep_drafts(folder, os.fstat(handle).st_ctime)
        yield Draft(path, handle, final)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Write a complete file in one step, replacing an existing one; creates its directory."""
    with draft(path) as file:
        file.write(data)
        file.publish()


def sync_folder(folder: bytes) -> None:
    """Make the names in a directory durable, if it still exists."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a directory
            raise
    finally:
        os.close(handle)
