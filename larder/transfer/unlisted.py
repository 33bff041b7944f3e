"""What a directory has and a listing cannot return: unreadable directories, dangling links, names
that are not UTF-8. What is not wanted anyway is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from larder.config.globs import Selection
from larder.errors import Failure, ObjectError

__all__ = ["SHOWN_FAILURES", "Unlisted", "beginning"]

SHOWN_FAILURES = 1000

_LITERAL = re.compile(r"[^*?\[{]*")
_NAMES = ("\x01", "a", "Z.jpg", "0000", "é")
"""Names that may be in a directory: an exclude glob that matches these matches all."""


class Unlisted:
    """Collects what could not be listed, if it could be included.

    Args:
        include: ``source.include``.
        exclude: ``source.exclude``.

    Attributes:
        count: Number of files and directories.
        failures: The first of them.
    """

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self.count = 0
        self.failures: tuple[Failure, ...] = ()
        self._beginnings = [beginning(glob) for glob in include]
        self._wanted = Selection(include, exclude)
        self._excluded = Selection(exclude)
        self._last = b""

    def __call__(self, path: bytes, error: ObjectError) -> None:
        """Note a file, or a directory whose path ends in a slash.

        Args:
            path: Its path below the source, in the order of a listing: a listing that is repeated
                from its last good page may report a path again.
            error: What is wrong with it.
        """
        if path <= self._last:
            return
        self._last = path
        key = path.decode("utf-8", "backslashreplace")
        if not (self._may_be_wanted(key) if key.endswith("/") else self._wanted(key)):
            return
        self.count += 1
        if len(self.failures) < SHOWN_FAILURES:
            self.failures += (Failure.of(key, error),)

    def _may_be_wanted(self, folder: str) -> bool:
        """Whether there may be a wanted object in a directory."""
        included = any(
            folder.startswith(start) or start.startswith(folder) for start in self._beginnings
        )
        inside = (f"{folder}{between}{name}" for between in ("", "b/") for name in _NAMES)
        return included and not all(map(self._excluded, inside))


def beginning(glob: str) -> str:
    """What each key that a glob matches begins with."""
    match = _LITERAL.match(glob)
    assert match is not None, "it matches the empty string"
    return match[0]
