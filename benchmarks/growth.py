"""A dataset that grows: what a change costs Larder, and what it costs those who pack everything.

::

    python -m benchmarks.growth [--peers-python PYTHON] [--runs 1] [--only real] [--quick]
        [--large] [--days 100] [--files-scale 1] [--directory DIR] [--json]

Two bodies, both in class folders of two splits:

- real files: 20,000 JPEGs on disk of about 110 kB, lognormal as ImageNet's, in shards of 150 MB:
  about 15 of them, so that even few random samples touch most, unlike in a large dataset.
- invented samples: 1,000,000 of 1 to 2 kB that no disk holds, their bytes made up when they are
  read, in shards of 4 MB: about 800, as many as ImageNet has in shards of 150 MB. They are this
  small so that a first build takes minutes.

Each body is built once, then changed from there: nothing; 1 percent added, anywhere; 0.1 percent
removed at random, with both policies; 0.01 percent changed. In the order of the keys, shuffled, and
shuffled with a cache of the encoded records; real files also with a mirror, which is the default of
dataset files. The labels are those of the folders. With ``--large``: 5,000,000 samples of about 150
bytes, and 1 percent added, for their peak memory. A file a day for a hundred days: real files, all
days in one process that forgets what it read.

What everybody does, taking turns in the same run, each turn in a process of its own whose start and
imports do not count, all synced to the disk within the time:

- ours: lists the source, finds out what changed, plans, and writes what is new. Its bytes are
  those that its stores move; manifests are counted apart, and read in place after their digest was
  checked once.
- webdataset (ShardWriter) and MosaicML Streaming (MDSWriter): write everything again, without
  hashes or indexes of the samples.
- DVC: ``dvc add`` of the folder of files, then again. It finds out what changed by time and inode,
  and copies by file into its cache; it makes no shards. Invented samples are not files: null.
- Lance: one dataset; rows are marked as deleted, and appended at the end. It is told what changed.

Of the peak of the memory, what is the process's own is told on stderr: a process that writes or
reads an LMDB file maps its pages too, which the system takes back when others need the memory.

What a peer wrote are the files that are new in its folder (DVC's state databases apart), what it
read are the bytes of its process's calls. The peers need the packages of
benchmarks/requirements-growth.txt, best in an environment of their own; those that are not there
are null in the document, and are named on stderr. In the first variant of each body only.

The document has a case for each figure. For a step, the first peer is ``first build``, ours, and
the target is a share of it; ``arithmetic`` is what the step has to write: see
`benchmarks.growing.report.arithmetic_bytes`. Tables in Markdown go to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.growing.body import ADDED, FIRST, Body, Step
from benchmarks.growing.contenders import Ours, contenders, installed_peers
from benchmarks.growing.daily import run_daily
from benchmarks.growing.files import make_files
from benchmarks.growing.names import Names, Picks, pick
from benchmarks.growing.ours import Measured
from benchmarks.growing.report import (
    LIMIT,
    daily_figures,
    daily_table,
    figures,
    markdown,
    tables,
)
from benchmarks.growing.rounds import run_variant
from benchmarks.harness import Figure, arguments_parser, document, say, settle

REAL_FILES, INVENTED_SAMPLES, LARGE_SAMPLES = 20_000, 1_000_000, 5_000_000
FILE_BYTES, SAMPLE_BYTES, TINY_BYTES = 110_000, 1_500, 150
SHARD_BYTES, SMALL_SHARD_BYTES, LARGE_SHARD_BYTES = 150_000_000, 4_000_000, 50_000_000
SMALLEST_SHARD_BYTES = 100_000
LARGE_PEAK_BYTES = 500_000_000
QUICK_SCALE = 0.002
QUICK_DAYS = 3

SHUFFLED = {"shards": {"shuffle_seed": 7}}
CACHED = {**SHUFFLED, "cache": {"records": "encoded"}}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "in key order": {},
    "shuffled": SHUFFLED,
    "shuffled, cached": CACHED,
}
REAL_VARIANTS = {**VARIANTS, "mirrored, shuffled, cached": {**CACHED, "mirror": True}}
BODIES = ("real", "invented", "daily")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: the flags, and what follows from them.

    There are ``scale`` times the samples, in shards smaller by as much. With ``quick``, only the
    first and the last variants are run, and nothing of the peers is synced.
    """

    folder: Path
    scale: float
    runs: int
    python: str
    peers: tuple[str, ...]
    days: int
    quick: bool

    def settle(self) -> None:
        """Let the disk come to rest."""
        if not self.quick:
            settle()

    def real(self) -> Body:
        """Real files, which are made here."""
        count = self._count(REAL_FILES)
        folder = self.folder / "real"
        body = Body(
            name=f"{count:,} real files",
            names=Names(count, "JPEG"),
            mean_bytes=FILE_BYTES,
            shard_bytes=self._shard_bytes(SHARD_BYTES),
            folder=str(folder),
        )
        if not folder.exists():
            say(f"making {body.name}")
            size_bytes = make_files(Path(body.files), body.names)
            say(f"{body.name}: {size_bytes:,} bytes, {size_bytes / count:,.0f} each")
        return body

    def invented(self) -> Body:
        """Samples that no disk holds."""
        count = self._count(INVENTED_SAMPLES)
        return Body(
            name=f"{count:,} invented samples",
            names=Names(count, "bin"),
            mean_bytes=SAMPLE_BYTES,
            shard_bytes=self._shard_bytes(SMALL_SHARD_BYTES),
        )

    def large(self) -> Body:
        """Many tiny samples that no disk holds."""
        count = self._count(LARGE_SAMPLES)
        return Body(
            name=f"{count:,} tiny samples",
            names=Names(count, "bin"),
            mean_bytes=TINY_BYTES,
            shard_bytes=self._shard_bytes(LARGE_SHARD_BYTES),
        )

    def _count(self, samples: int) -> int:
        return max(100, round(samples * self.scale))

    def _shard_bytes(self, size_bytes: int) -> int:
        """Smaller shards for fewer samples: as many of them, unless they were too small."""
        return max(SMALLEST_SHARD_BYTES, round(size_bytes * min(1.0, self.scale)))


def run_body(body: Body, plan: Plan) -> Iterator[Figure]:
    """All variants of one body, the peers beside the first."""
    every = list((REAL_VARIANTS if body.real else VARIANTS).items())
    for number, (variant, fields) in enumerate([every[0], every[-1]] if plan.quick else every):
        place = plan.folder / f"variant-{number}"
        peers = plan.peers if number == 0 else ()
        ours, others = contenders(body, fields, plan.python, peers, place, sync=not plan.quick)
        result = run_variant(variant, body, ours, others, plan.runs, before=plan.settle)
        say(tables(result))
        yield from figures(result, with_peers=number == 0)


def run_large(body: Body, plan: Plan) -> Iterator[Figure]:
    """A first build and one growth, for their memory."""
    ours = Ours(body, {}, plan.folder / "large")
    step = Step(ADDED, pick(body.count, added=max(1, body.count // 100)))
    ours.folder.clear()
    found: dict[str, Measured] = {}
    for name, picks in ((FIRST, Picks()), (step.name, step.picks)):
        plan.settle()
        say(f"{body.name}: {name}")
        found[name] = ours.turn(picks, {}, first=name == FIRST)
        ours.folder.keep()
        yield Figure(
            f"{body.name}: {name}: peak bytes of memory",
            found[name].peak_bytes,
            {LIMIT: LARGE_PEAK_BYTES},
            1.0,
        )
        beside = {} if name == FIRST else {FIRST: found[FIRST].seconds}
        yield Figure(f"{body.name}: {name}: seconds", found[name].seconds, beside)
    ours.folder.drop()
    rows = [
        (
            name,
            f"{each.seconds:,.1f}",
            f"{each.peak_bytes / 1e6:,.0f}",
            f"{each.own_peak_bytes / 1e6:,.0f}",
        )
        for name, each in found.items()
    ]
    say(f"\n### {body.name}\n\n" + markdown(("step", "seconds", "peak MB", "own MB"), rows) + "\n")


def run(plan: Plan, only: Sequence[str], *, large: bool) -> Iterator[Figure]:
    if "real" in only:
        yield from run_body(plan.real(), plan)
    if "daily" in only:
        daily = run_daily(plan.real(), {}, plan.days, plan.folder / "daily", before=plan.settle)
        say(daily_table(daily))
        yield from daily_figures(daily)
    if "invented" in only:
        yield from run_body(plan.invented(), plan)
    if large:
        yield from run_large(plan.large(), plan)


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_parser("Grow a dataset: Larder beside those who pack everything again.")
    parser.set_defaults(runs=1)
    parser.add_argument(
        "--peers-python", default=sys.executable, help="the Python that has the peers' packages"
    )
    parser.add_argument(
        "--only", choices=BODIES, action="append", help="this part (may be repeated; default: all)"
    )
    parser.add_argument("--large", action="store_true", help="also 5,000,000 tiny samples")
    parser.add_argument("--days", type=int, default=100, help="days of a file each (default 100)")
    parser.add_argument("--quick", action="store_true", help="a small run, in seconds, not synced")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    flags = parsed(argv)
    scale = flags.files_scale * (QUICK_SCALE if flags.quick else 1)
    # Not resolved: a Python of a virtual environment is a link to one without its packages.
    python = os.path.abspath(flags.peers_python)
    peers = tuple(installed_peers(python))
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as folder:
        plan = Plan(
            folder=Path(folder),
            scale=scale,
            runs=flags.runs,
            python=python,
            peers=peers,
            days=min(flags.days, QUICK_DAYS) if flags.quick else flags.days,
            quick=flags.quick,
        )
        found = list(run(plan, flags.only or BODIES, large=flags.large))
    if flags.json:
        print(document("growth", found))


if __name__ == "__main__":
    main()
