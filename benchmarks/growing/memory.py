"""The memory of this process. Imports nothing of Larder: the peers use it too."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 0.02


class Peak:
    """The most memory of its own that the process had: without the files that it maps."""

    def __init__(self) -> None:
        self.bytes = status_bytes("RssAnon")

    def look(self) -> None:
        """Compare with what it has now."""
        self.bytes = max(self.bytes, status_bytes("RssAnon"))


@contextmanager
def watched() -> Iterator[Peak]:
    """Look at the memory many times a second until the block ends.

    The system tells the peak of all pages only, which counts those of files that LMDB maps.
    """
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(_SECONDS):
            peak.look()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak.look()


def status_bytes(name: str, process: str = "self") -> float:
    """One number of /proc/PROCESS/status, such as ``VmHWM``; NaN where the system does not tell."""
    try:
        found = re.search(rf"{name}:\s*(\d+)", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return float("nan")
    return 1024.0 * int(found[1]) if found else float("nan")
