"""Commands as users type them, and the memory of all their processes."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from benchmarks.harness import LARDER, ROOT, SECONDS, Measured, run_command

PLAIN = "mirror: false\nvalidate: none\n"
SYNCED = "seconds until it is on the disk"

_LOOK_SECONDS = 0.02
_FAMILY_LOOKS = 10
"""Looking for processes that were started takes longer than looking at them."""


def run_synced(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Run a command: seconds until it ends, and until all it wrote is on the disk."""
    seconds = run_command(command, env=dict(environment))[SECONDS]
    start = perf_counter()
    os.sync()
    return {SECONDS: seconds, SYNCED: seconds + perf_counter() - start}


@contextmanager
def watched_memory() -> Iterator[Memory]:
    """Look at the processes that this one starts in a block."""
    memory, done = Memory(), threading.Event()
    watcher = threading.Thread(target=memory.watch, args=(done,), daemon=True)
    watcher.start()
    try:
        yield memory
    finally:
        done.set()
        watcher.join()


class Memory:
    """The memory of the descendants that this process does not have yet, as /proc tells of them.

    Attributes:
        peak_bytes: The most that they had together at any time, with the pages that they share,
            those of libraries, counted for each.
        own_bytes: The same with the pages of files counted for one process only, the one that has
            most of them: about what the machine has to have.
        largest_bytes: The peak of the largest of them.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.own_bytes = 0
        self.largest_bytes = 0
        self._before = _family(os.getpid())

    def watch(self, done: threading.Event) -> None:
        """Look many times a second."""
        looks = 0
        while not done.wait(_LOOK_SECONDS):
            if looks % _FAMILY_LOOKS == 0:
                family = _family(os.getpid()) - self._before
            looks += 1
            found = [_read(f"/proc/{process}/status") for process in family]
            now = sum(_status_bytes(status, "VmRSS") for status in found)
            self.peak_bytes = max(self.peak_bytes, now)
            own = sum(_status_bytes(status, "RssAnon") for status in found)
            own += max((_status_bytes(status, "RssFile") for status in found), default=0)
            self.own_bytes = max(self.own_bytes, own)
            peaks = (_status_bytes(status, "VmHWM") for status in found)
            self.largest_bytes = max([self.largest_bytes, *peaks])


def _family(process: int) -> set[int]:
    """A process and its descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if found := re.search(r"PPid:\s*(\d+)", _read(f"{folder}/status")):
            parents[int(folder.name)] = int(found[1])
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # it has ended
        return ""


def _status_bytes(status: str, name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0


def write_configs(
    folder: Path,
    source: Mapping[str, str],
    storage: Mapping[str, str],
    options: str = PLAIN,
) -> None:
    """The dataset file and the cluster file of a user who wants shards; rows of YAML are added."""
    for name in ("datasets", "clusters", "experiments"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    dataset = f"source: {_inline(source)}\nsplits: {{train: '**'}}\nlabels: {{from: folder}}\n"
    (folder / "datasets" / "bench.yaml").write_text(dataset + options)
    cluster = f"storage: {_inline(storage)}\nconsumer: {{kind: determined, release: '0.38'}}\n"
    (folder / "clusters" / "local.yaml").write_text(cluster)
    shutil.copy(ROOT / "configs/experiments/default.yaml", folder / "experiments")


def _inline(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}: "{value}"' for name, value in fields.items()) + "}"


def prepare_command(configs: Path, output: Path) -> list[str]:
    """``larder prepare`` of `write_configs`."""
    flags = ["--dataset", "bench", "--config-dir", str(configs), "--output", str(output)]
    return [*LARDER, "prepare", "--quiet", *flags]


def copy_command(source: Mapping[str, str], storage: Mapping[str, str]) -> list[str]:
    """``larder copy`` from one place to another."""
    command = [*LARDER, "copy", source["url"], storage["url"], "--quiet"]
    for side, place in (("source", source), ("storage", storage)):
        command += ["--set", f"{side}.endpoint={place['endpoint']}"]
    return command
