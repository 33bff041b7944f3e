"""The content of a large part in a file without a name, mapped into memory to be read once.

The memory of a process does not grow by what it reads there, as far as pages are given back in the
meantime: what was given back and is read again comes from the file.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import google_crc32c

from larder.disk import disk_errors

_LEAST_BYTES = 1 << 20
"""Shorter contents are not worth a file."""

_GIVE_BACK_SECONDS = 0.002
"""In this time a core copies a few MB."""


def kept(pieces: Iterable[bytes], size_bytes: int) -> tuple[bytes | mmap.mmap, int]:
    """The content of a part and its CRC-32C; one piece of it is in memory at a time.

    The content is mapped if it is large. Its file is gone when nothing refers to it any more.
    ``store.full``: no space is left for temporary files.
    """
    crc32c = 0
    if size_bytes < _LEAST_BYTES:
        data = b"".join(pieces)
        return data, google_crc32c.value(data)
    folder = Path(tempfile.gettempdir())
    with disk_errors(folder):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    with file:
        for piece in pieces:
            crc32c = google_crc32c.extend(crc32c, piece)
            with disk_errors(folder):
                file.write(piece)
        with disk_errors(folder):
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), crc32c


@contextmanager
def giving_back(contents: Iterable[object]) -> Iterator[None]:
    """Give back the memory of mapped contents, again and again, while something reads them."""
    mapped = [each for each in contents if isinstance(each, mmap.mmap)]
    if not mapped:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_give_back, args=(mapped, over), name="larder-give-back")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _give_back(mapped: Sequence[mmap.mmap], over: threading.Event) -> None:
    while not over.wait(_GIVE_BACK_SECONDS):
        for each in mapped:
            each.madvise(mmap.MADV_DONTNEED)
