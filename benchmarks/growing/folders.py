"""Folders that a turn changes and that the next turn finds as they were."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class Folder:
    """Where a contender writes, kept in a folder that must not be there yet.

    What was kept is linked, not copied: everybody writes files once and renames them. Databases
    (DVC's state) are copied, and are not counted as written.
    """

    def __init__(self, path: Path, kept: Path) -> None:
        self.path = path
        self._kept = kept
        self._before: frozenset[tuple[int, int, int]] = frozenset()

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self._before = frozenset()

    def keep(self) -> None:
        """Remember the folder as it is now."""
        shutil.rmtree(self._kept, ignore_errors=True)
        self.path.rename(self._kept)
        self.restore()

    def restore(self) -> None:
        """Make the folder what it was when it was kept."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self._kept, self.path, copy_function=_link)
        self._before = frozenset(_states(self.path))

    def drop(self) -> None:
        """Remove the folder, and what was kept."""
        for path in (self.path, self._kept):
            shutil.rmtree(path, ignore_errors=True)

    def written_bytes(self) -> int:
        """Bytes of the files that are new, or other than when it was cleared or restored."""
        return sum(state[2] for state in _states(self.path) if state not in self._before)


def _states(folder: Path) -> Iterator[tuple[int, int, int]]:
    for place, _, names in os.walk(folder):
        for name in names:
            if not _database(name):
                found = os.stat(os.path.join(place, name))
                yield found.st_ino, found.st_mtime_ns, found.st_size


def _database(name: str) -> bool:
    return ".db" in name


def _link(source: str, target: str) -> None:
    if _database(os.path.basename(source)):
        shutil.copy2(source, target)
    else:
        os.link(source, target)
