"""The length and the sha256 of an object, read once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from larder.disk import disk_errors
from larder.store.base import Readable


def read_digest(
    store: Readable,
    key: str,
    *,
    copy: Path | None = None,
    told: Callable[[int], None] = lambda size_bytes: None,
) -> tuple[int, str]:
    """Read an object, and return its length and sha256.

    Raises:
        NotFoundError: It does not exist.
        StoreError: ``store.full``: no space is left for the copy; or an error of the store.
        LarderError: Another error of the store.
    """
    hasher, size_bytes = hashlib.sha256(), 0
    with ExitStack() as stack:
        reader = stack.enter_context(store.open(key))
        file = None
        if copy:
            stack.enter_context(disk_errors(copy))
            file = stack.enter_context(copy.open("wb"))
        for buffer in reader:
            hasher.update(buffer)
            size_bytes += len(buffer)
            if file:
                file.write(buffer)
            told(len(buffer))
    return size_bytes, hasher.hexdigest()
