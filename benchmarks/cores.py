"""Copies, shards and caches with 1, 2, 4 ... processes on as many cores.

Cases: copy (20,000 objects of 110 kB from a bucket to a directory), shards-s3 and shards-files
(the same objects packed), cache (4,000 photographs to a decoded cache). Each is a ``larder``
command that is pinned to the first cores, with ``runner.workers`` as many; its peer is the command
on the first number of cores. The server, ``rclone serve s3``, may use all cores, and competes with
the command on them. The CPU of the whole command is counted for each object.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.growing.files import photographs
from benchmarks.harness import (
    CPU,
    KEPT_SECONDS,
    LARDER,
    SECONDS,
    Contender,
    Figure,
    Measured,
    alternate,
    benchmark_parser,
    run,
    run_command,
    say,
)
from benchmarks.packing.commands import PLAIN, prepare_command, write_configs
from tests.support.servers import S3Server, rclone_s3

OBJECTS, OBJECT_BYTES, PHOTOGRAPHS = 20_000, 110_000, 4_000
BUCKET = "objects"
DECODED = "mirror: false\nvalidate: decode\ncache: {records: decoded}\n"
CASES = ("copy", "shards-s3", "shards-files", "cache")


def turn(
    folder: Path, server: S3Server, command: Callable[[Path], list[str]], cores: int
) -> Measured:
    """Run a command of Larder's, which gets a new directory to write to, on some cores."""
    with tempfile.TemporaryDirectory(dir=folder) as storage:
        words = command(Path(storage))
        server.compute_etags(BUCKET)
        setting = "runner.workers" if "copy" in words else "cluster.runner.workers"
        return run_command(
            [*words, "--set", f"{setting}={cores}"],
            env={**os.environ, **server.environment},
            preexec_fn=lambda: os.sched_setaffinity(0, range(cores)),
        )


def prepare(folder: Path, source: str, options: str, storage: Path) -> list[str]:
    write_configs(folder / "configs", {"url": source}, {"url": str(storage)}, options)
    return prepare_command(folder / "configs", storage / "out")


def write(path: Path, content: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(content)


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    objects, images = (max(1, round(n * flags.files_scale)) for n in (OBJECTS, PHOTOGRAPHS))
    files, pictures = folder / "served" / BUCKET, folder / "pictures"
    with rclone_s3(folder / "served", reread_seconds=KEPT_SECONDS) as server:
        server.create_bucket(BUCKET)
        for number in range(objects):
            write(files / f"{number % 40:03}" / f"{number:06}.jpg", os.urandom(OBJECT_BYTES))
        for number, image in enumerate(photographs(images)):
            write(pictures / "one" / f"{number:06}.jpg", image)
        commands: dict[str, Callable[[Path], list[str]]] = {
            "copy": lambda storage: [*LARDER, "copy", f"s3://{BUCKET}", str(storage), "--quiet"],
            "shards-s3": partial(prepare, folder, f"s3://{BUCKET}", PLAIN),
            "shards-files": partial(prepare, folder, str(files), PLAIN),
            "cache": partial(prepare, folder, str(pictures), DECODED),
        }
        usable = len(os.sched_getaffinity(0))
        counts = flags.cores or [1 << power for power in range(usable.bit_length())]
        for name in flags.only or CASES:
            say(name)
            turns: dict[str, Contender] = {
                f"{cores} cores": partial(turn, folder, server, commands[name], cores)
                for cores in counts
            }
            medians = alternate(turns, flags.rounds)
            first = next(iter(turns))
            thousands = (images if name == "cache" else objects) / 1_000
            for cores, took in medians.items():
                case, alone = f"{name}, {cores}", medians[first]
                yield Figure(f"{case}: {SECONDS}", took[SECONDS], {first: alone[SECONDS]})
                beside = {first: alone[CPU] / thousands}
                yield Figure(f"{case}: CPU ms an object", took[CPU] / thousands, beside)


PARSER = benchmark_parser("cores", __doc__, cases=CASES)
PARSER.add_argument("--cores", type=int, nargs="+", help="numbers of cores (default: 1, 2, 4 ...)")

if __name__ == "__main__":
    run(PARSER, measure)
