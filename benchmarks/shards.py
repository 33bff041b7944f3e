"""Packing files into shards: Larder, GNU tar, webdataset, MDS, TensorFlow and litdata.

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

Commands, as users type them, whose start and imports count:

- s3: between two servers ``rclone serve s3`` on this machine, ``larder prepare`` without a mirror,
  beside ``larder copy`` of the same objects. 10,000 of about 110 KB.
- litdata: 20,000 files of 110 KB in a directory, ``larder prepare`` beside a script that calls
  ``litdata.optimize`` with as many workers as there are cores.
- memory-large, memory-parquet: ``larder prepare`` once, of 20 files of 100 MB, into tars and into
  Parquet. The memory of the largest process, and of all processes of the command together: with
  the pages of libraries, which they share, counted for each, and counted once.

Left out unless asked for with ``--only``: formats-small, and memory-many, memory-shuffled and
memory-mirrored, the memory of packing 1,000,000 files of about 100 bytes into tars by key,
shuffled, and shuffled with a mirror. Each of these takes from four to ten minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import (
    KEPT_SECONDS,
    SECONDS,
    Figure,
    Measured,
    Target,
    alternate,
    apart,
    benchmark_parser,
    run,
    run_command,
    say,
    table,
)
from benchmarks.packing.bodies import SHARD_BYTES, Body, Setting
from benchmarks.packing.checks import check_all
from benchmarks.packing.commands import (
    PLAIN,
    SYNCED,
    copy_command,
    prepare_command,
    run_synced,
    watched_memory,
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
from larder.machine import usable_cores
from tests.support.servers import rclone_s3

LARGE = Body("110 KB files", 10_000, 110_000)
SMALL = Body("1 KB files", 50_000, 1_000)
LITDATA_FILES = Body("110 KB files", 20_000, 110_000, sigma=0.0)
MANY = Body("samples of about 100 bytes", 1_000_000, 100)
HUGE = Body("samples of 100 MB", 20, 100_000_000, sigma=0.0)
SHUFFLED = "shards: {shuffle_seed: 7}\n"

TARGETS = {OURS: Target(1.0, "GNU tar 1.34"), OURS_TWO: Target(0.7, "GNU tar 1.34")}
"""For the large files."""

COPY = "larder copy"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: ``scale`` times the files."""

    folder: Path
    scale: float
    rounds: int
    python: str
    peers: tuple[str, ...]

    def scaled(self, body: Body) -> Body:
        """A body with another number of files; at least two."""
        return replace(body, files=max(2, round(body.files * self.scale)))

    def made(self, body: Body) -> tuple[Body, Setting]:
        """The scaled body, and the folder with its files."""
        scaled = self.scaled(body)
        say(f"making {scaled.files:,} {body.name}")
        setting = Setting(Path(tempfile.mkdtemp(dir=self.folder)))
        setting.prepare(scaled)
        return scaled, setting


def compare_tars(plan: Plan, body: Body) -> Iterator[Figure]:
    """Tars of one body by everybody, and where the time of ours goes."""
    scaled, setting = plan.made(body)
    contenders = tars(setting, scaled.files, plan.python, plan.peers)
    medians = alternate(contenders, plan.rounds, before=setting.clear)
    for measure in MEASURES:
        seconds = {name: medians[name][measure] for name in (GNU_TAR, *medians)}
        ours = {name: seconds.pop(name) for name in (OURS, OURS_TWO)}
        for name, took in ours.items():
            target = TARGETS[name] if body is LARGE else None
            yield Figure(f"tar, {body.name}, {measure}, {name}", took, seconds, target)
    setting.clear()
    shares = apart(where_it_goes, setting)
    rows = [(name, f"{part:.3f}", f"{part / shares['wall']:.0%}") for name, part in shares.items()]
    say(table(("where ours goes", "seconds", "of wall"), rows) + "\n")
    shutil.rmtree(setting.folder)


def compare_formats(plan: Plan, body: Body) -> Iterator[Figure]:
    """The other formats of ours beside our tar, and TFRecord beside TensorFlow."""
    scaled, setting = plan.made(body)
    contenders = formats(setting, scaled.files, plan.python, plan.peers)
    medians = alternate(contenders, plan.rounds, before=setting.clear)
    for measure in MEASURES:
        seconds = {name: took[measure] for name, took in medians.items()}
        peers = {"our tar": seconds.pop(TAR)}
        tensorflow = {TENSORFLOW: seconds.pop(TENSORFLOW, None)}
        for name, took in seconds.items():
            beside = tensorflow | peers if name in (TFRECORD, TFRECORD_TWO) else peers
            yield Figure(f"{name}, {body.name}, {measure}", took, beside)
    shutil.rmtree(setting.folder)


def compare_with_copy(plan: Plan) -> Iterator[Figure]:
    """Objects of one server packed into shards on another, beside a copy of the same objects."""
    scaled, setting = plan.made(LARGE)
    source, stored = setting.folder / "one", setting.folder / "two"
    with ExitStack() as stack:
        one = stack.enter_context(rclone_s3(source, reread_seconds=KEPT_SECONDS))
        two = stack.enter_context(rclone_s3(stored))
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
            one.compute_etags("source")

        def pack() -> Measured:
            took = run_synced(_prepare(setting, from_, place()), environment)
            check_all("tar", setting, scaled.files)
            return took

        def copy() -> Measured:
            took = run_synced(copy_command(from_, place()), environment)
            for key in keys:
                size = (setting.out / key).stat().st_size
                assert size == (setting.files / key).stat().st_size, f"{key} was not copied"
            return took

        medians = alternate({OURS: pack, COPY: copy}, plan.rounds, before=clear)
    yield from _command_figures("S3 to S3", medians, COPY)
    shutil.rmtree(setting.folder)


def compare_with_litdata(plan: Plan) -> Iterator[Figure]:
    """A directory packed by the two commands."""
    if LITDATA not in plan.peers:
        say(f"{LITDATA} is not installed")
        return
    scaled, setting = plan.made(LITDATA_FILES)
    cores = usable_cores()
    cache = setting.folder / "cache"
    arguments = [str(setting.files), str(setting.out), str(SHARD_BYTES), str(cores)]
    script = [plan.python, "-m", "benchmarks.packing.peers", *arguments]
    environment = {**os.environ, "DATA_OPTIMIZER_CACHE_FOLDER": str(cache)}

    def ours() -> Measured:
        places = {"url": str(setting.files)}, {"url": str(setting.out)}
        took = run_synced(_prepare(setting, *places), os.environ)
        check_all("tar", setting, scaled.files)
        return took

    def theirs() -> Measured:
        took = run_synced(script, environment)
        check_all("litdata", setting, scaled.files)
        return took

    medians = alternate({OURS: ours, LITDATA: theirs}, plan.rounds, before=setting.clear)
    name = f"{scaled.files:,} x 110 KB, {cores} workers"
    yield from _command_figures(name, medians, LITDATA)
    shutil.rmtree(setting.folder)


def measure_memory(plan: Plan, body: Body, how: str = "", options: str = PLAIN) -> Iterator[Figure]:
    """The memory of one run; ``how`` is the name of its options."""
    scaled = plan.scaled(body)
    name = f"{scaled.files:,} {body.name}{how}"
    say(f"making {name}")
    setting = Setting(Path(tempfile.mkdtemp(dir=plan.folder)))
    scaled.make(setting.files)
    setting.clear()
    places = {"url": str(setting.files)}, {"url": str(setting.out)}
    command = _prepare(setting, *places, options)
    with watched_memory() as memory:
        took = run_command(command)
    shards = (*setting.out.rglob("*.tar"), *setting.out.rglob("bench-*.parquet"))
    written = sum(path.stat().st_size for path in shards)
    assert written > scaled.files * scaled.mean_bytes * 0.9, "not everything was packed"
    peak = f"{name}: peak bytes of memory"
    yield Figure(f"{peak}, largest process", memory.largest_bytes)
    yield Figure(f"{peak}, all processes", memory.peak_bytes)
    yield Figure(f"{peak}, libraries once", memory.own_bytes)
    yield Figure(f"{name}: seconds", took[SECONDS])
    shutil.rmtree(setting.folder)


def _prepare(
    setting: Setting, source: Mapping[str, str], storage: Mapping[str, str], options: str = PLAIN
) -> list[str]:
    configs = setting.folder / "configs"
    write_configs(configs, source, storage, options)
    return prepare_command(configs, setting.folder / "emitted")


def _command_figures(name: str, medians: Mapping[str, Measured], peer: str) -> Iterator[Figure]:
    for what in (SECONDS, SYNCED):
        yield Figure(f"{name}: {what}", medians[OURS][what], {peer: medians[peer][what]})


CASES: Mapping[str, Callable[[Plan], Iterator[Figure]]] = {
    "tar-large": lambda plan: compare_tars(plan, LARGE),
    "tar-small": lambda plan: compare_tars(plan, SMALL),
    "formats-large": lambda plan: compare_formats(plan, LARGE),
    "s3": compare_with_copy,
    "litdata": compare_with_litdata,
    "memory-large": lambda plan: measure_memory(plan, HUGE),
    "memory-parquet": lambda plan: measure_memory(
        plan, HUGE, ", Parquet", f"{PLAIN}shards: {{format: parquet}}\n"
    ),
}
LONG_CASES: Mapping[str, Callable[[Plan], Iterator[Figure]]] = {
    "formats-small": lambda plan: compare_formats(plan, SMALL),
    "memory-many": lambda plan: measure_memory(plan, MANY),
    "memory-shuffled": lambda plan: measure_memory(plan, MANY, ", shuffled", PLAIN + SHUFFLED),
    "memory-mirrored": lambda plan: measure_memory(
        plan, MANY, ", shuffled, mirror", f"mirror: true\nvalidate: none\n{SHUFFLED}"
    ),
}


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    peers = tuple(ask(flags.peers_python, {}))
    plan = Plan(folder, flags.files_scale, flags.rounds, flags.peers_python, peers)
    for name in flags.only or CASES:
        yield from {**CASES, **LONG_CASES}[name](plan)


PARSER = benchmark_parser("shards", __doc__, rounds=5, cases=[*CASES, *LONG_CASES], peers=True)

if __name__ == "__main__":
    run(PARSER, measure)
