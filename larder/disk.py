"""Files on a local disk: their digest, and errors while they are written."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from larder.errors import ConfigError, StoreError

__all__ = ["disk_errors", "sha256_file"]

_FULL = {errno.ENOSPC, errno.EDQUOT}


def sha256_file(path: Path) -> str:
    """The sha256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the errors of writing ``path`` on a local disk into those of `larder.errors`.

    Raises:
        StoreError: ``store.full``: no space is left.
        ConfigError: ``config.path``: the operating system refuses for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreError(
                "store.full", "no space is left on the disk", where=str(path)
            ) from error
        raise ConfigError(
            "config.path", f"cannot be written: {error.strerror or error}", where=str(path)
        ) from error
