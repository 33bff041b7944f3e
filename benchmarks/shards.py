"""Packing files into shards: Larder, GNU tar, webdataset, MDS, TensorFlow and litdata.

::

    python -m benchmarks.shards [--peers-python PYTHON] [--only CASE] [--runs 5]
        [--files-scale 1] [--directory DIR] [--json]

Two bodies of files: 10,000 of about 110 KB (lognormal, as ImageNet's) and 50,000 of about 1 KB.
Everybody reads the same files in the same order from the page cache and writes to the same disk,
taking turns. After each turn it is checked that all samples were written, and some of their
contents. Peers that are not installed are left out.

Writers (``tar-large``, ``tar-small``, ``formats-large``, ``formats-small``): each turn in a process
of its own, whose start and imports do not count. Everybody's output is synced to the disk within
the time (Larder's store does it by itself, for the others it is done here), and the time without
the syncs is compared beside it, as disks vary more than programs.

- ours: reads the sample order from Parquet, packs shards of 150 MB with labels, checks each file's
  size and etag against it, computes the crc32c of every part and the sha256 of every shard,
  publishes each atomically, and writes the sample index as Parquet. Images are not decoded.
- ours, two processes: the same, each with half of the shards. The small files fit into one shard,
  of which they make two, as with ``shards.count_min: 2``.
- GNU tar: one archive, no labels, no hashes, no index.
- webdataset: ShardWriter, shards of 150 MB, labels as ``.cls``, no hashes, no index.
- MDS: MDSWriter, shards of 150 MB, key and label as columns, no hashes.
- TensorFlow: TFRecordWriter, files of 150 MB with the same ``tf.train.Example`` records that ours
  writes.

Commands (``s3``, ``litdata``, and ``memory-`` with ``many``, ``shuffled``, ``mirrored``, ``large``,
``parquet``), as users type them: start and imports count.

- s3: between two servers ``rclone serve s3`` on this machine, ``larder prepare`` without a mirror,
  beside ``larder copy`` of the same objects. 10,000 of about 110 KB.
- litdata: 20,000 files of 110 KB in a directory, ``larder prepare`` beside a script that calls
  ``litdata.optimize`` with as many workers as there are cores.
- memory: ``larder prepare`` once, of 1,000,000 files of about 100 bytes (into tars by key,
  shuffled, and shuffled with a mirror, which takes eight minutes) and of 20 of 100 MB (into tars
  and into Parquet). The memory of the largest process, and of all processes of the command
  together: with the pages of libraries, which they share, counted for each, and counted once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import Figure, alternate, apart, arguments_parser, document, say
from benchmarks.packing.bodies import SHARD_BYTES, Body, Setting
from benchmarks.packing.checks import check_all
from benchmarks.packing.commands import (
    Took,
    copy_command,
    prepare_command,
    run_command,
    write_configs,
)
from benchmarks.packing.contenders import (
    GNU_TAR,
    OURS,
    OURS_TWO,
    TFRECORD,
    TFRECORD_TWO,
    ask,
    formats,
    tars,
)
from benchmarks.packing.ours import MEASURES, TAR, where_it_goes
from benchmarks.packing.peers import LITDATA, TENSORFLOW
from benchmarks.packing.report import seconds_table, shares_table, summary
from larder.machine import usable_cores
from tests.support.servers import rclone_s3

LARGE = Body("110 KB files", 10_000, 110_000)
SMALL = Body("1 KB files", 50_000, 1_000)
LITDATA_FILES = Body("110 KB files", 20_000, 110_000, sigma=0.0)
MANY = Body("samples of about 100 bytes", 1_000_000, 100)
HUGE = Body("samples of 100 MB", 20, 100_000_000, sigma=0.0)
SHUFFLED = ", shuffle_seed: 7"

TAR_TARGETS = {LARGE.name: (1.1, 0.8), SMALL.name: (2.5, 1.3)}
"""With one process and with two, as multiples of GNU tar's time."""

TFRECORD_TARGET = 0.6
S3_TARGET = 1 / 0.8
LITDATA_TARGET = 0.5
PEAK_BYTES = 400e6

COPY = "larder copy"
COMMAND_MEASURES = ("until it ends", "until it is on the disk")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: ``scale`` times the files."""

    folder: Path
    scale: float
    runs: int
    python: str
    peers: tuple[str, ...]

    def scaled(self, body: Body) -> Body:
        """A body with another number of files; at least two."""
        return replace(body, files=max(2, round(body.files * self.scale)))

    def made(self, body: Body) -> tuple[Body, Setting, int]:
        """The scaled body, the folder with its files, and their bytes."""
        scaled = self.scaled(body)
        say(f"making {scaled.files:,} {body.name}")
        setting = Setting(Path(tempfile.mkdtemp(dir=self.folder)))
        return scaled, setting, setting.prepare(scaled)


def compare_tars(plan: Plan, body: Body) -> Iterator[Figure]:
    """Tars of one body by everybody, and where the time of ours goes."""
    scaled, setting, size_bytes = plan.made(body)
    contenders = tars(setting, scaled.files, plan.python, plan.peers)
    medians = alternate(contenders, plan.runs, before=setting.clear)
    one, two = TAR_TARGETS[body.name]
    for measure in MEASURES:
        seconds = {name: found[measure] for name, found in medians.items()}
        title = f"{body.name}, {measure}"
        say("\n" + seconds_table(title, seconds, GNU_TAR, scaled.files, size_bytes) + "\n")
        ours = {name: seconds.pop(name) for name in (OURS, OURS_TWO)}
        yield Figure(f"tar, {title}", ours[OURS], seconds, one)
        yield Figure(f"tar by two processes, {title}", ours[OURS_TWO], seconds, two)
    setting.clear()
    say(shares_table(apart(where_it_goes, setting), scaled.files) + "\n")
    shutil.rmtree(setting.folder)


def compare_formats(plan: Plan, body: Body) -> Iterator[Figure]:
    """The other formats of ours beside our tar, and TFRecord beside TensorFlow."""
    scaled, setting, size_bytes = plan.made(body)
    contenders = formats(setting, scaled.files, plan.python, plan.peers)
    medians = alternate(contenders, plan.runs, before=setting.clear)
    for measure in MEASURES:
        seconds = {name: found[measure] for name, found in medians.items()}
        title = f"{body.name}, {measure}"
        say("\n" + seconds_table(title, seconds, TAR, scaled.files, size_bytes) + "\n")
        tar_seconds = {"our tar": seconds.pop(TAR)}
        if peer := seconds.pop(TENSORFLOW, None):
            peers = {TENSORFLOW: peer}
            yield Figure(f"tfrecord, {title}", seconds[TFRECORD], peers, TFRECORD_TARGET)
            by_two = f"tfrecord by two processes, {title}"
            yield Figure(by_two, seconds.pop(TFRECORD_TWO), peers, TFRECORD_TARGET)
        for name, took in seconds.items():
            yield Figure(f"{name} beside tar, {title}", took, tar_seconds)
    shutil.rmtree(setting.folder)


def compare_with_copy(plan: Plan) -> Iterator[Figure]:
    """Objects of one server packed into shards on another, beside a copy of the same objects."""
    scaled, setting, size_bytes = plan.made(LARGE)
    source, stored = setting.folder / "one", setting.folder / "two"
    with ExitStack() as stack:
        one, two = (stack.enter_context(rclone_s3(folder)) for folder in (source, stored))
        one.create_bucket("source")
        shutil.rmtree(source / "source")
        setting.files.rename(source / "source")
        setting.files.symlink_to(source / "source")
        keys = setting.keys()
        environment = {**os.environ, **two.environment}
        del environment["AWS_ENDPOINT_URL"]
        from_ = {"url": "s3://source", "endpoint": one.endpoint}

        def place() -> dict[str, str]:
            name = Path(tempfile.mktemp(prefix="to")).name.replace("_", "0").lower()
            two.create_bucket(name)
            # The files that the server has written are what is checked.
            setting.out.unlink(missing_ok=True)
            setting.out.symlink_to(stored / name)
            return {"url": f"s3://{name}", "endpoint": two.endpoint}

        def clear() -> None:
            for folder in stored.iterdir():
                shutil.rmtree(folder)

        def pack() -> Mapping[str, float]:
            took = _prepare(setting, from_, place(), environment)
            check_all("tar", setting, scaled.files)
            return _measures(took)

        def copy() -> Mapping[str, float]:
            took = run_command(copy_command(from_, place()), environment)
            for key in keys:
                size = (setting.out / key).stat().st_size
                assert size == (setting.files / key).stat().st_size, f"{key} was not copied"
            return _measures(took)

        medians = alternate({OURS: pack, COPY: copy}, plan.runs, before=clear)
    yield from _command_figures("S3 to S3", medians, COPY, S3_TARGET, scaled.files, size_bytes)
    shutil.rmtree(setting.folder)


def compare_with_litdata(plan: Plan) -> Iterator[Figure]:
    """A directory packed by the two commands."""
    if LITDATA not in plan.peers:
        say(f"{LITDATA} is not installed")
        return
    scaled, setting, size_bytes = plan.made(LITDATA_FILES)
    cores = usable_cores()
    cache = setting.folder / "cache"
    arguments = [str(setting.files), str(setting.out), str(SHARD_BYTES), str(cores)]
    script = [plan.python, "-m", "benchmarks.packing.peers", *arguments]
    environment = {**os.environ, "DATA_OPTIMIZER_CACHE_FOLDER": str(cache)}

    def ours() -> Mapping[str, float]:
        places = {"url": str(setting.files)}, {"url": str(setting.out)}
        took = _prepare(setting, *places, dict(os.environ))
        check_all("tar", setting, scaled.files)
        return _measures(took)

    def theirs() -> Mapping[str, float]:
        took = run_command(script, environment)
        check_all("litdata", setting, scaled.files)
        return _measures(took)

    medians = alternate({OURS: ours, LITDATA: theirs}, plan.runs, before=setting.clear)
    name = f"{scaled.files:,} x 110 KB, {cores} workers"
    yield from _command_figures(name, medians, LITDATA, LITDATA_TARGET, scaled.files, size_bytes)
    shutil.rmtree(setting.folder)


def measure_memory(
    plan: Plan, body: Body, how: str = "", shards: str = "", *, mirror: bool = False
) -> Iterator[Figure]:
    """The memory of one run; ``how`` is what further keys of ``shards`` and a mirror are called."""
    scaled = plan.scaled(body)
    name = f"{scaled.files:,} {body.name}{how}"
    shards = f"bytes: 150 MB{shards}"
    say(f"making {name}")
    setting = Setting(Path(tempfile.mkdtemp(dir=plan.folder)))
    scaled.make(setting.files)
    setting.clear()
    places = {"url": str(setting.files)}, {"url": str(setting.out)}
    took = _prepare(setting, *places, dict(os.environ), shards=shards, mirror=mirror)
    say(
        f"{name}: {took.seconds:.1f} s, {took.peak_bytes / 1e6:,.0f} MB together, "
        f"{took.own_bytes / 1e6:,.0f} MB with libraries once, "
        f"{took.largest_bytes / 1e6:,.0f} MB the largest process"
    )
    found = (*setting.out.rglob("*.tar"), *setting.out.rglob("bench-*.parquet"))
    written = sum(path.stat().st_size for path in found)
    assert written > scaled.files * scaled.mean_bytes * 0.9, "not everything was packed"
    peak = f"{name}: peak bytes of memory"
    yield Figure(f"{peak}, largest process", took.largest_bytes, limit=PEAK_BYTES)
    yield Figure(f"{peak}, all processes", took.peak_bytes, limit=PEAK_BYTES)
    yield Figure(f"{peak}, libraries once", took.own_bytes, limit=PEAK_BYTES)
    yield Figure(f"{name}: seconds", took.seconds)
    shutil.rmtree(setting.folder)


def _prepare(
    setting: Setting,
    source: Mapping[str, str],
    storage: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    shards: str = "bytes: 150 MB",
    mirror: bool = False,
) -> Took:
    configs = setting.folder / "configs"
    write_configs(configs, source, storage, shards=shards, mirror=mirror)
    return run_command(prepare_command(configs, setting.folder / "emitted"), environment)


def _measures(took: Took) -> Mapping[str, float]:
    return dict(zip(COMMAND_MEASURES, (took.seconds, took.synced_seconds), strict=True))


def _command_figures(
    name: str,
    medians: Mapping[str, Mapping[str, float]],
    peer: str,
    target: float,
    count: int,
    size_bytes: int,
) -> Iterator[Figure]:
    for measure in COMMAND_MEASURES:
        seconds = {each: found[measure] for each, found in medians.items()}
        title = f"{name}, {measure}"
        say("\n" + seconds_table(title, seconds, peer, count, size_bytes) + "\n")
        yield Figure(title, seconds[OURS], {peer: seconds[peer]}, target)


CASES: Mapping[str, Callable[[Plan], Iterator[Figure]]] = {
    "tar-large": lambda plan: compare_tars(plan, LARGE),
    "tar-small": lambda plan: compare_tars(plan, SMALL),
    "formats-large": lambda plan: compare_formats(plan, LARGE),
    "formats-small": lambda plan: compare_formats(plan, SMALL),
    "s3": compare_with_copy,
    "litdata": compare_with_litdata,
    "memory-many": lambda plan: measure_memory(plan, MANY),
    "memory-shuffled": lambda plan: measure_memory(plan, MANY, ", shuffled", SHUFFLED),
    "memory-mirrored": lambda plan: measure_memory(
        plan, MANY, ", shuffled, mirror", SHUFFLED, mirror=True
    ),
    "memory-large": lambda plan: measure_memory(plan, HUGE),
    "memory-parquet": lambda plan: measure_memory(plan, HUGE, ", Parquet", ", format: parquet"),
}


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_parser("Pack files into shards: Larder beside other packers.")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="the Python that has the peers' packages"
    )
    parser.add_argument(
        "--only", choices=CASES, action="append", help="this case (may be repeated; default: all)"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    flags = parsed(argv)
    # Not resolved: a Python of a virtual environment is a link to one without its packages.
    python = os.path.abspath(flags.peers_python)
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as folder:
        peers = tuple(ask(python, {}))
        plan = Plan(Path(folder), flags.files_scale, flags.runs, python, peers)
        found = [figure for name in flags.only or CASES for figure in CASES[name](plan)]
    say("\n" + summary(found))
    if flags.json:
        print(document("shards", found))


if __name__ == "__main__":
    main()
