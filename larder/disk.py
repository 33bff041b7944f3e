"""Files on a local disk: their digest, and errors while they are written."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from larder.errors import ConfigError, StoreError

__all__ = ["FULL", "disk_errors", "sha256_file"]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error numbers that mean that there is no space for a file."""


def sha256_file(path: Path) -> str:
    """The sha256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(path: Path, *, reading: bool = False) -> Iterator[None]:
    """Turn the errors of writing ``path`` on a local disk into those of `larder.errors`.

    Args:
        path: The file or directory, for messages.
        reading: Whether it is read instead of written.

    Raises:
        StoreError: ``store.full``: no space is left.
        ConfigError: ``config.path``: the operating system refuses for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StoreError(
                "store.full", "no space is left on the disk", where=str(path)
            ) from error
        done = "read" if reading else "written"
        message = f"cannot be {done}: {error.strerror or type(error).__name__}"
        raise ConfigError("config.path", message, where=str(path)) from error
