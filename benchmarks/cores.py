"""The same work with 1, 2, 4 ... processes on as many cores.

::

    python -m benchmarks.cores [--cores 1 2] [--runs 3] [--files-scale 1] [--only copy]
        [--directory DIR] [--json]

Cases: copy (20,000 objects of 110 kB from a bucket to a directory), shards-s3 and shards-files
(the same ones packed), cache (4,000 photographs to a decoded cache). Each is a ``larder`` command
that is pinned to the first cores, with ``runner.workers`` as many. The server, ``rclone serve s3``,
is on whatever cores there are, and shares them with the command where these are all.

Printed are MB a second, CPU seconds an object, both of the whole command, and how many times as
fast as on one core each is.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.growing.files import photographs
from benchmarks.harness import Figure, arguments_parser, document, say, settle, table
from tests.support.servers import S3Server, rclone_s3

OBJECTS, OBJECT_BYTES, PHOTOGRAPHS = 20_000, 110_000, 4_000
_LARDER = [sys.executable, "-m", "larder.cli.main"]
CASES = ["copy", "shards-s3", "shards-files", "cache"]
_PLAIN = "mirror: false\nvalidate: none\n"
_DECODED = "mirror: false\nvalidate: decode\ncache: {records: decoded}\n"


@dataclass(frozen=True, slots=True)
class Case:
    """A command of Larder's; ``command`` takes a new directory that it writes to."""

    name: str
    objects: int
    bytes: int
    command: Callable[[Path], list[str]]


@dataclass(frozen=True, slots=True)
class Took:
    seconds: float
    cpu_seconds: float


def run(case: Case, cores: int, server: S3Server, folder: Path) -> Took:
    """Run the command of a case on some cores."""
    setting = "runner.workers" if case.name == "copy" else "cluster.runner.workers"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        command = [*case.command(Path(name)), "--quiet", "--set", f"{setting}={cores}"]
        settle()
        before, start = _cpu_seconds(), time.perf_counter()
        subprocess.run(
            command,
            check=True,
            env={**os.environ, **server.environment},
            preexec_fn=lambda: os.sched_setaffinity(0, range(cores)),
        )
        return Took(time.perf_counter() - start, _cpu_seconds() - before)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def cases(folder: Path, scale: float) -> Iterator[tuple[list[Case], S3Server]]:
    """The cases, and the server of their objects, for the duration of a ``with`` block."""
    objects, images = (max(1, round(count * scale)) for count in (OBJECTS, PHOTOGRAPHS))
    with rclone_s3(folder / "served") as server:
        server.create_bucket("objects")
        files, pictures = folder / "served" / "objects", folder / "pictures"
        for number in range(objects):
            write(files / f"{number % 40:03}" / f"{number:06}.jpg", os.urandom(OBJECT_BYTES))
        size_bytes = 0
        for number, image in enumerate(photographs(images)):
            write(pictures / f"{number:06}.jpg", image)
            size_bytes += len(image)

        def prepare(name: str, source: str, options: str) -> Callable[[Path], list[str]]:
            configs = folder / "configs"
            rows = f"source: {{url: '{source}'}}\nsplits: {{train: '**'}}\n{options}"
            write(configs / "datasets" / f"{name}.yaml", rows.encode())
            rows = "storage: {url: /x}\nconsumer: {kind: json}\n"
            write(configs / "clusters" / "local.yaml", rows.encode())

            def command(storage: Path) -> list[str]:
                flags = [
                    "--dataset",
                    name,
                    "--config-dir",
                    str(configs),
                    "--output",
                    f"{storage}/out",
                ]
                return [*_LARDER, "prepare", *flags, "--set", f"cluster.storage.url={storage}"]

            return command

        def copy(storage: Path) -> list[str]:
            return [*_LARDER, "copy", "s3://objects", str(storage)]

        total_bytes = objects * OBJECT_BYTES
        yield (
            [
                Case("copy", objects, total_bytes, copy),
                Case("shards-s3", objects, total_bytes, prepare("s3", "s3://objects", _PLAIN)),
                Case("shards-files", objects, total_bytes, prepare("files", str(files), _PLAIN)),
                Case("cache", images, size_bytes, prepare("images", str(pictures), _DECODED)),
            ],
            server,
        )


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments_parser("The same work on 1, 2, 4 ... cores.")
    parser.set_defaults(runs=3)
    parser.add_argument("--only", action="append", choices=CASES, help="may be repeated")
    parser.add_argument("--cores", type=int, nargs="+", default=None, help="default: 1, 2, 4 ...")
    flags = parser.parse_args(argv)
    usable = len(os.sched_getaffinity(0))
    counts = flags.cores or [1 << power for power in range(usable.bit_length())]
    figures, rows = [], []
    with (
        tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as name,
        cases(Path(name), flags.files_scale) as (every, server),
    ):
        for case in every:
            if flags.only and case.name not in flags.only:
                continue
            took: dict[int, list[Took]] = {count: [] for count in counts}
            for turn in range(flags.runs + 1):
                for count in counts:
                    one = run(case, count, server, Path(name))
                    say(f"  {case.name}, {count}: {one.seconds:.2f} s, CPU {one.cpu_seconds:.2f} s")
                    if turn:
                        took[count].append(one)
            seconds = {count: median(one.seconds for one in took[count]) for count in counts}
            for count in counts:
                cpu_seconds = median(one.cpu_seconds for one in took[count])
                first = {f"{counts[0]} cores": seconds[counts[0]]}
                figures.append(
                    Figure(f"{case.name}, {count} cores: seconds", seconds[count], first)
                )
                rows.append(
                    (
                        f"{case.name}, {count}",
                        f"{seconds[count]:.2f}",
                        f"{case.bytes / seconds[count] / 1e6:,.0f}",
                        f"{1e3 * cpu_seconds / case.objects:.2f}",
                        f"{seconds[counts[0]] / seconds[count]:.2f}",
                    )
                )
    heads = ("case, cores", "seconds", "MB/s", "CPU ms an object", "times as fast")
    say("\n" + table(heads, rows))
    if flags.json:
        print(document("cores", figures))


if __name__ == "__main__":
    main()
