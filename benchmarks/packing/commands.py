"""Commands as users type them, with all that they start, and the memory of all of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.harness import settle

__all__ = ["Took", "copy_command", "prepare_command", "run_command", "write_configs"]

ROOT = Path(__file__).parents[2]

_LOOK_SECONDS = 0.02
_FAMILY_LOOKS = 10
"""Looking for processes that were started takes longer than looking at them."""


@dataclass(frozen=True, slots=True)
class Took:
    """What a command took.

    Attributes:
        seconds: Wall time until it ended.
        synced_seconds: Until all it wrote was on the disk.
        peak_bytes: The most memory that its processes had together at any time, with the pages
            that they share, those of libraries, counted for each.
        own_bytes: The same with the pages of files counted for one process only, the one that has
            most of them: about what the machine has to have.
        largest_bytes: The peak of the largest of them.
    """

    seconds: float
    synced_seconds: float
    peak_bytes: int
    own_bytes: int
    largest_bytes: int


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> Took:
    """Run a command to its end; a `RuntimeError` has the end of what a failed one said."""
    start = perf_counter()
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    memory = _Memory(process.pid)
    done = threading.Event()
    watcher = threading.Thread(target=memory.watch, args=(done,), daemon=True)
    watcher.start()
    _, said = process.communicate()
    seconds = perf_counter() - start
    done.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {said[-2_000:]}")
    settle()
    synced_seconds = perf_counter() - start
    found = memory.peak_bytes, memory.own_bytes, memory.largest_bytes
    return Took(seconds, synced_seconds, *found)


class _Memory:
    """Looks at a process and its descendants, as /proc tells of them."""

    def __init__(self, process: int) -> None:
        self.peak_bytes = 0
        self.own_bytes = 0
        self.largest_bytes = 0
        self._process = process

    def watch(self, done: threading.Event) -> None:
        """Look many times a second."""
        looks = 0
        while not done.wait(_LOOK_SECONDS):
            if looks % _FAMILY_LOOKS == 0:
                family = _family(self._process)
            looks += 1
            found = [_read(f"/proc/{process}/status") for process in family]
            now = sum(_status_bytes(status, "VmRSS") for status in found)
            self.peak_bytes = max(self.peak_bytes, now)
            own = sum(_status_bytes(status, "RssAnon") for status in found)
            own += max(_status_bytes(status, "RssFile") for status in found)
            self.own_bytes = max(self.own_bytes, own)
            peaks = (_status_bytes(status, "VmHWM") for status in found)
            self.largest_bytes = max(self.largest_bytes, *peaks)


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
    *,
    shards: str = "bytes: 150 MB",
    mirror: bool = False,
) -> None:
    """The dataset file and the cluster file of a user who wants shards."""
    for name in ("datasets", "clusters", "experiments"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "datasets" / "bench.yaml").write_text(
        "description: files in class folders\n"
        f"source: {_inline(source)}\n"
        'splits: {train: "**"}\n'
        "labels: {from: folder}\n"
        f"mirror: {str(mirror).lower()}\n"
        "validate: none\n"
        f"shards: {{{shards}}}\n"
    )
    (folder / "clusters" / "local.yaml").write_text(
        f"storage: {_inline(storage)}\nconsumer: {{kind: determined, release: '0.38'}}\n"
    )
    shutil.copy(ROOT / "configs/experiments/default.yaml", folder / "experiments")


def _inline(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}: "{value}"' for name, value in fields.items()) + "}"


def prepare_command(configs: Path, output: Path) -> list[str]:
    """``larder prepare`` of `write_configs`."""
    flags = ["--dataset", "bench", "--config-dir", str(configs), "--output", str(output)]
    return [sys.executable, "-m", "larder.cli.main", "prepare", "--quiet", *flags]


def copy_command(source: Mapping[str, str], storage: Mapping[str, str]) -> list[str]:
    """``larder copy`` from one place to another."""
    command = [sys.executable, "-m", "larder.cli.main", "copy", source["url"], storage["url"]]
    for side, place in (("source", source), ("storage", storage)):
        command += ["--set", f"{side}.endpoint={place['endpoint']}"]
    return [*command, "--quiet"]
